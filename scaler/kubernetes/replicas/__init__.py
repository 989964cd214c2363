"""The replicas behind a job's pods.

observed   replicas as seen in their pods, the cache and their nodes
cache      replicas without a pod in the stores: requested, vanished, or known from Brain
losses     nodes that are lost, or about to be
actions    changes to pods, carried out apart from the code that decides them
secrets    the token, the environment, and the ids that were used
"""
