"""``make bench-elastic``: measures the cost of changes of the world under brain-run and under
torchrun in the same run.

``events`` causes changes in a ``job.Job``, ``trace`` reads the files that the script wrote,
``table`` computes rows and bars from them, and ``__main__`` determines the order of the
measurements.
"""
