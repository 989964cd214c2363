"""Generates schema, rights and reference from the kinds. It writes files and talks to no server."""
