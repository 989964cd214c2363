"""Requests for changes, and Brain's plans as objects.

plans       ScalePlans: people's requests, and the objects that show Brain's own plans
migration   moves the pods that a ScalePlan names: each leaves once its replacement runs
requests    an edit of an ElasticJob: another size, a stop, a resume
"""
