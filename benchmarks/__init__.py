"""Benchmarks that compare this project with other programs: one command each, results in
RESULTS.md.
"""
