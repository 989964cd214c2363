"""Requests for change, and Brain's plans as objects.

plans       ScalePlans: people's requests, and the objects in which Brain's own plans appear
migration   pods that a ScalePlan names are replaced elsewhere before they go
requests    an edit of an ElasticJob: another size, a stop, a resume
"""
