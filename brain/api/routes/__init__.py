"""One module per kind of resource; each has a ``router`` that ``brain.api.app`` includes."""
