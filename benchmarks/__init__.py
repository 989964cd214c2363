"""This project beside its peers: one command each, results in RESULTS.md."""
