"""What a job has beside the pods that plans scale.

- ``upkeep``: services, a PodGroup, gates, and where agents find each other
- ``roles``: replicas whose size no plan changes: parameter servers, chief, evaluator
- ``rigid``, ``worlds``: worlds of jobs that no agent of ours runs, as their pods show them
"""
