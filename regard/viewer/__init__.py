"""The viewer: what a model attends to, and how it computes that, in a browser, a notebook, or a file to send."""
