"""Every picture of README.md and docs/, light and dark: `make pictures`.

A group makes pictures that share a model or a browser. It is called with a `Look` and returns files by name; this
package writes them as docs/pictures/NAME-light.svg and NAME-dark.svg.
"""
