"""What was trained, put to use: text in, text out, for any number of lines in bounded memory."""
