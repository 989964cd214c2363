"""Measures if the launcher finds bad nodes, hangs and failures, and reports nothing else. See
``__main__``.
"""
