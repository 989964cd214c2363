"""A process that has imported what a job's workers need, and forks them.

fork_server   the agent's use of it
start         its start, under the workers' interpreter
channel       messages with descriptors, and handles of what it forked
command       what a Python command runs, read as the interpreter reads it
learned       the imports of a script, remembered between runs
parked        workers that were started ahead where forking is unsafe
"""
