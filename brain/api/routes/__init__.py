"""One module per kind of thing; each has a ``router`` that ``brain.api.app`` includes."""
