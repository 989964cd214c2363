"""Peers' policies, re-implemented from their description."""
