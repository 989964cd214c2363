"""A process that has imported the modules of a job's workers, and forks the workers.

fork_server     the agent's interface to the fork server
start           starts the fork server under the workers' interpreter
channel         messages with descriptors, and handles of forked workers
command         a Python command, parsed as the interpreter parses it
script_imports  the modules to import ahead of a script
learned         the imports of a script, remembered between runs
parked          workers that are started ahead if forking is unsafe
"""
