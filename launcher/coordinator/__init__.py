"""The agent that coordinates a job: it observes, asks ``membership``, and acts.

coordinator      connections, turns and the end of a job
membership       observation -> action. Pure
topology         agents -> ranks. Pure
world            the state of the present world, and the actions on it
brain            desired worlds from Brain, reports to it
leadership       leader election among agents; ``pod_leadership`` and ``pod_place`` among pods
witness_file     the file that decides between two halves of a world
pins             a second name for a checkpoint, so that it cannot be lost
hangs            if a world makes no progress, finds the cause and reports it
slow_nodes       step times -> a replica to leave out
network_checks   tries nodes in pairs before the first world
shards           hands out shards of data and accounts for them
"""
