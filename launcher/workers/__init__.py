"""The workers of one agent: it starts, watches, informs and stops them.

workers        all of them, from the start of a world to its end
factory        one worker is made
environment    the variables that it finds
processes      a worker that runs: its streams, its control file, the signs of its end
fork_server    a process that has imported what workers need, and forks them
stopping       workers end, with everything that they started
stack_dumps    a look at workers that say nothing
batch_file     the batch that a script shall take
collector      one collector runs on this machine
events         the JSON of ``--event-log-handler``
log_specs      the layouts of ``--logs-specs``
numa           the CPUs near a GPU, for ``--numa-binding``
"""
