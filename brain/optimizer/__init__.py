"""Policies: from models to a size, with the reasons. Pure; each wrapper has one concern."""

from brain.optimizer.explain import recommend
from brain.optimizer.situation import Situation

__all__ = ["Situation", "recommend"]
