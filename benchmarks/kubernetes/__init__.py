"""The controller runtime beside kopf, at the emulated API server."""
