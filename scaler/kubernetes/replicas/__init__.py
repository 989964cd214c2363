"""What stands behind a job's pods: what is remembered of them, what is done to them, their Secret.

memory    replicas that no pod shows: asked for, vanished, told of by Brain
acts      changes of pods, carried out apart from whoever wants them
secrets   the token, the environment, and which ids were used
"""
