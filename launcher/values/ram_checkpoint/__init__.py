"""Places of RAM checkpoints, for their readers in other processes. Standard library only.

parts   each rank's part of a step, complete or not there
links   names that are links into shared memory so far
ages    the ages of RAM checkpoints that are worth a report
"""
