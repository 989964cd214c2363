"""Requests for changes, and Brain's plans as objects.

plans       ScalePlans: people's requests, and the objects that show Brain's own plans
migration   replaces pods that a ScalePlan names elsewhere before they go
requests    an edit of an ElasticJob: another size, a stop, a resume
"""
