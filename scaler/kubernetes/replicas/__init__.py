"""The replicas behind a job's pods.

observed   replicas as seen in their pods, the cache and their nodes
cache      replicas without a pod in the stores: requested, vanished, or known from Brain
losses     nodes that are lost, or about to be
actions    carries out changes to pods on separate threads
secrets    a job's Secret: its token, its environment, and the used ids of replicas
"""
