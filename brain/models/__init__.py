"""Models that predict: throughput with its uncertainty. Pure; numpy and scipy only.

A model that cannot know raises ``Undetermined``.
"""
