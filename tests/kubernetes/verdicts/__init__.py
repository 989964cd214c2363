"""Verdicts of a real kube-scheduler on random clusters: how they are recorded, and the record."""
