"""Parsing of the command line: torchrun's flags, the workers' command, and Slurm's variables.

flags        every flag of the installed torchrun, and brain-run's own
entrypoint   the command that workers run
slurm        the agents' place in an allocation of Slurm
torchrun     the flags of the torchrun that belongs to the workers' torch
"""
