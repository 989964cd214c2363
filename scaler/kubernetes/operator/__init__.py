"""The Kubernetes operator: its controllers, its exchange with Brain, and its options.

operator   stores, controllers, loops, probes and metrics
jobs       the controller of ElasticJobs: Brain's copy, dependent objects, status
backend    implements the scaler's port: each replica is a pod
probes     probes and metrics over HTTP
options    parses the command line
"""
