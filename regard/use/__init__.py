"""Use trained models: text in, text out, for any number of lines in bounded memory."""
