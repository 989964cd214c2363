"""Are bad nodes, hangs and failures found, and nothing else? See ``__main__``."""
