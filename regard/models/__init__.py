"""Complete models made of parts, and the recipes that describe them."""
