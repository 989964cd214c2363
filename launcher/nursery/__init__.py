"""Parts of ``launcher.processes.nursery``: the channel to a fork server, the reading of a command,
and what is remembered of a script's imports."""
