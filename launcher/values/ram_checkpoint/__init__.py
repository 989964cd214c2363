"""Paths of RAM checkpoints, for readers in other processes. This package uses only the standard
library.

parts   each rank's part of a step, published only when complete
links   names that are still links into shared memory
ages    the ages of RAM checkpoints that are worth a report
"""
