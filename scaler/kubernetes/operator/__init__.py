"""The operator of Kubernetes: its controllers, its exchange with Brain, and its options.

operator   stores, controllers, loops, probes and metrics
jobs       keeps ElasticJobs: Brain's copy of each, its dependents, its status
backend    replicas as pods: the scaler's port
probes     probes and metrics over HTTP
options    command line -> the operator's options
"""
