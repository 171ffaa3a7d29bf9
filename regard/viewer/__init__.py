"""The viewer: what any model attends to, and why, in a browser, a notebook, or a file to send."""
