"""The workers of one agent: code that starts, watches, informs and stops them.

workers        all workers, from the start of a world to its end
factory        makes one worker
environment    a worker's environment variables
processes      a running worker: its streams, its control file, the signs of its end
fork_server    a process that has imported what workers need, and forks them
stopping       ends workers and all that they started
stack_dumps    looks at silent workers
batch_file     the batch size that Brain chose for a script
collector      keeps one collector running on this machine
events         the JSON of ``--event-log-handler``
log_specs      the layouts of ``--logs-specs``
numa           the CPUs near a GPU, for ``--numa-binding``
"""
