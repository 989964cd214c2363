"""Builds samples from a window of steps."""

from __future__ import annotations

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Number of first steps in the phase ``warmup``, in which allocators, autotuners and caches fill.
WARMUP_STEPS = 5
#: A pause (a save or an evaluation) is part of the step if most of the newest steps had one: this
#: number of steps of this number. A script that pauses at every second step has 4 of 8.
PAUSED_STEPS, RECENT_STEPS = 5, 8
#: Most steps of a window for its medians; sorting more would block the interpreter for too long.
WINDOW_STEPS = 1000

PHASES = ("training", "warmup", "checkpoint", "evaluation")
TRAINING, WARMUP, CHECKPOINT, EVALUATION = range(4)


class Phases:
    """Gives each step its phase."""

    def __init__(self) -> None:
        # One bit for each of the newest steps, which is set if the step had a pause.
        self.paused = 0

    def next(self, step: int, saved: bool, evaluated: bool) -> int:
        """Return the phase of the next step, the ``step``-th of this process."""
        pause = saved or evaluated
        self.paused = (self.paused << 1 | pause) & (1 << RECENT_STEPS) - 1
        if step <= WARMUP_STEPS:
            return WARMUP
        if not pause or bin(self.paused).count("1") >= PAUSED_STEPS:
            return TRAINING
        return CHECKPOINT if saved else EVALUATION


def samples(measured: tuple[Any, ...]) -> list[Any]:
    """Turn one measurement into samples: (kind, monotonic nanoseconds, fields)."""
    if measured[0] == "save":
        return [measured]
    _, at_ns, step, window, gradients, met, sharded = measured
    phases: dict[int, list[Any]] = {}
    for entry in window:
        phases.setdefault(entry[0], []).append(entry)
    found = [
        ("throughput", at_ns, dict(_summary(entries), phase=PHASES[phase], step=step, met=met))
        for phase, entries in sorted(phases.items(), reverse=True)
    ]
    if sharded is not None:
        for _, _, fields in found:
            fields["sharded_bytes"] = sharded
    # The last one is of training where any is.
    found[-1][2].update(_compared(*gradients))
    return found


def _compared(norms: list[Any], waits: list[int], reason: str | None) -> dict[str, Any]:
    """Return the fields with the mean wait, and the mean squared norms over the most frequent pair
    of batch sizes. ``norms`` has (batch, square, batch, square) for each step.
    """
    fields: dict[str, Any] = {}
    if waits:
        fields["exchange_wait_seconds"] = sum(waits) / 1e9 / len(waits)
    if norms:
        batches = collections.Counter((small, big) for small, _, big, _ in norms)
        small_batch, big_batch = batches.most_common(1)[0][0]
        usual = [each for each in norms if each[0] == small_batch and each[2] == big_batch]
        fields.update(
            gns_steps=len(usual),
            gns_small_batch=small_batch,
            gns_small_square=sum(each[1] for each in usual) / len(usual),
            gns_big_batch=big_batch,
            gns_big_square=sum(each[3] for each in usual) / len(usual),
        )
    elif reason is not None:
        fields["gns_unavailable"] = reason[:200]
    return fields


def _summary(entries: list[Any]) -> dict[str, Any]:
    """Return medians and means of a window; each entry is one step: (phase, duration, wait,
    micro-batches, examples, batch).
    """
    steps = len(entries)
    seconds = sum(entry[1] for entry in entries) / 1e9
    examples = sum(entry[4] for entry in entries)
    few = entries[:WINDOW_STEPS]
    batches = collections.Counter(entry[5] for entry in few if entry[5] is not None)
    return {
        "steps": steps,
        "step_seconds": _median([entry[1] for entry in few]) / 1e9,
        "step_seconds_mean": seconds / steps,
        "data_wait_seconds": sum(entry[2] for entry in entries) / 1e9 / steps,
        "accumulation": max(1, int(_median([entry[3] for entry in few]))),
        "local_batch": batches.most_common(1)[0][0] if batches else None,
        "examples_per_second": examples / seconds if examples and seconds else None,
    }


def _median(values: list[int]) -> float:
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
