"""Generates schema, roles and reference from the kinds. It only writes files."""
