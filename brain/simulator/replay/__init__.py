"""Recorded decisions, repeated on the recorded data with other settings or another policy.

    record      the stored history of jobs since a time
    past        the stores as they were at a time, in memory
    decisions   each recorded decision, its repetition, and the expected difference between them

Every decision is repeated on the recorded past. The consequences of a different decision were never
measured, so a difference is computed only until the next recorded change.
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
