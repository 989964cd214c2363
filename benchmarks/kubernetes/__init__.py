"""Measures the controller runtime and an operator on kopf, both with the emulated API server."""
