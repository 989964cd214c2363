"""Runs training programs that other people wrote, under torchrun and under brain-run.

``programs`` lists the programs, ``environments`` installs their packages, ``runs`` runs one program
once, ``comparing`` compares two runs, and ``__main__`` publishes the differences.
"""
