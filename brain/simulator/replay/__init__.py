"""Recorded decisions, taken again on the recorded data by other settings or another policy.

    record      what the stores still know of jobs since an instant
    past        the stores as they were at an instant, in memory
    decisions   each recorded decision, the other one, and what the difference would have been

Every decision is taken on the past as it really was. The consequences of a different decision were
never measured, so differences hold until the next recorded change and are not added up beyond.
"""

from brain.simulator.replay.decisions import Replayed, ReplayVerdict, Support, Tally, replay, tally
from brain.simulator.replay.record import Record, Recording, recorded

__all__ = [
    "Record",
    "Recording",
    "ReplayVerdict",
    "Replayed",
    "Support",
    "Tally",
    "recorded",
    "replay",
    "tally",
]
