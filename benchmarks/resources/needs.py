"""(e) Runs real jobs on this machine that lack a resource: Brain must find which, and a plan must
add it.

``tests/end_to_end/needs.py`` contains the jobs.
"""

import tempfile
from pathlib import Path

from benchmarks.report import Row
from brain.typeset import plan_change, reallocation
from tests.end_to_end.needs import (
    SETTINGS,
    STARVED,
    THROTTLED,
    Mended,
    mend,
    permitted,
    renew,
)
from tests.harness import running

_STARVED, _THROTTLED, _LEAK = (
    f"(e) {name}, found and mended by a plan"
    for name in ("starved loader", "rank that its CPU quota stops", "leak")
)
_FASTER, _LEFT = "× the examples/s before", "s left when told"
#: Memory of the job that leaks, what each step keeps, and the seconds between two saves.
_MIB, _KEEPS_MIB, _SAVES = 960, 0.12, 20.0


def rows() -> list[Row]:
    """Return rows that compare the throughput after each plan with that before it; for a leak, the
    time that was left.
    """
    with tempfile.TemporaryDirectory(prefix="brain-", ignore_cleanup_errors=True) as home:
        return _rows(Path(home))


def _rows(home: Path) -> list[Row]:
    if why := permitted(home / "probe"):
        units = {_STARVED: _FASTER, _THROTTLED: _FASTER, _LEAK: _LEFT}
        return [Row(metric=m, value=None, unit=unit, note=why) for m, unit in units.items()]
    with running(home / "home", "--slots=4", settings=SETTINGS) as brain:
        starved = mend(brain, "starved", "--loads=0.08", finds=STARVED)
        throttled = mend(brain, "throttled", "--computes=0.2", replicas=2, finds=THROTTLED)
        leak = renew(brain, "leak", mib=_MIB, keeps=_KEEPS_MIB, saves=_SAVES)
    return [
        _faster(_STARVED, starved),
        _faster(_THROTTLED, throttled),
        Row(
            metric=_LEAK,
            value=leak.left_seconds,
            unit=_LEFT,
            note=_restarted(leak),
        ),
    ]


def _faster(name: str, one: Mended) -> Row:
    before, after = one.rates
    note = f"{_told(one)}; Brain's plan, approved by a person"
    return Row(metric=name, value=after / before, unit=_FASTER, note=note)


def _restarted(one: Mended) -> str:
    done = one.plan.outcome
    lost = f"{done.downtime_seconds:.1f} s without a step, {done.steps_redone} steps repeated"
    held = f"real job, its control group has {one.limit} bytes"
    return f"{held}; Brain's own plan, {plan_change(one.plan)}: {done.verdict}, {lost}"


def _told(one: Mended) -> str:
    what = reallocation(one.plan.current, one.plan.target)
    held = f"real job, its control group has {one.limit} µs of each 100 ms"
    return f"{held}; {what}: {one.plan.outcome.verdict}"
