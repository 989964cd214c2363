"""Policies that choose a size from a model, with reasons. They are pure.

A policy that wraps another one adds one concern.
"""

from brain.optimizer.explain import recommend
from brain.optimizer.situation import Situation

__all__ = ["Situation", "recommend"]
