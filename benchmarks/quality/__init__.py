"""Measures if training learns as much when its world and its batch size change."""
