"""Compares step-time models that are fitted to a few points of the tables of Pollux and Sia."""
