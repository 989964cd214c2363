"""What stands behind a job's pods: what is seen and remembered of them, what is done to them.

- ``seeing``: replicas as their pods, this memory and their nodes show them
- ``memory``: replicas that no pod shows: asked for, vanished, told of by Brain
- ``losses``: nodes that are lost, or about to be
- ``acts``: changes of pods, carried out apart from whoever wants them
- ``secrets``: the token, the environment, and which ids were used
"""
