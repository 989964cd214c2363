"""Policies of other systems, re-implemented from their descriptions."""
