"""Policies: from models to a size, with the reasons. Pure; wrappers of one concern each."""

from brain.optimizer.explain import recommend
from brain.optimizer.situation import Situation

__all__ = ["Situation", "recommend"]
