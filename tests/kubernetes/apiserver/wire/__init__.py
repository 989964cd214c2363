"""HTTP around the API: paths, media types, watches, faults."""
