"""``make bench-elastic``: what a change of the world costs, beside torchrun in the same run.

``events`` stages changes under ``job.Job``, ``trace`` reads what the script wrote down, ``table``
makes rows and bars of it; ``__main__`` says in which order all is run.
"""
