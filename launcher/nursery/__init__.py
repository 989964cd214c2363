"""The parts of ``launcher.processes.nursery``: the channel to one fork server, the reading of a worker's
command, and what is remembered about a script's imports."""
