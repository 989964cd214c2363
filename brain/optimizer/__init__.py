"""Policies: from models to a size, with the reasons. Pure; composed of wrappers, one concern each."""
