"""``python -m tests.web.busy``: a busy dashboard, from a Brain that runs, to be judged by a reader.

Sixty jobs share a pool. One has a straggler, one was rolled back, one missed its promise and kept
its size, and one node is silent. The command prints a link that signs in, and serves until Ctrl-C;
``--shots DIR`` takes pictures of overview, jobs and a job in both themes instead.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import expect

from brain.db import SqlStores, prepare
from brain.ports import Stores, Transaction
from brain.types.allocation import Allocation, Bounds
from brain.types.explanation import Evidence, Explanation
from brain.types.job import JobId, JobState
from brain.types.plan import PlanKind, PlanState, Verdict
from brain.types.recommendation import Recommendation
from brain.types.resources import Node, NodeName, Resources
from brain.types.world import Cause, Replica, ReplicaState
from brain.typeset import quantity
from tests.web import seed
from tests.web.browser import PATIENCE, code, launched, visit
from tests.web.measured import RATE, steps_of
from tests.web.screenshots import THEMES
from tests.web.served import Served

PROJECTS = ("vision", "speech", "ranking", "language")
JOBS = 60
#: By number: the straggler, who was rolled back, whose promise was missed, who shrank as promised.
STRAGGLER, ROLLED_BACK, MISSED, SHRUNK = 7, 11, 19, (3, 8, 14, 22, 27, 33, 38, 41)
ENDED, QUEUED = range(52, 58), range(58, 60)
#: How many times as long the straggler's steps take.
SLOWER = 1.35
#: How long ago jobs began, and how long ago their size changed.
AGE, CHANGED = timedelta(minutes=40), timedelta(minutes=24)
#: Samples are stored so far ahead: so long the page stays fresh.
AHEAD = timedelta(minutes=8)


def fleet(stores: Stores, now: datetime) -> None:
    """Store sixty jobs and nine nodes; another Brain holds the pool, so nothing moves by itself."""
    with stores.transaction() as tx:
        tx.leases.acquire(seed.LOCAL, "elsewhere", until=now + timedelta(hours=6), now=now)
        capacity = Resources(cpu_millis=20_000, memory_bytes=128 << 30)
        for number in range(9):
            seen = now - timedelta(minutes=4) if number == 5 else now + timedelta(hours=6)
            name = NodeName(f"node-{number + 1}")
            tx.nodes.put(Node(name=name, pool=seed.LOCAL, capacity=capacity, seen_at=seen))
        for number in range(JOBS):
            _job(tx, number, now)


def _job(tx: Transaction, number: int, now: datetime) -> None:
    id, name = _id(number), f"{PROJECTS[number % 4]}-{number + 1:02d}"
    begun, owner = now - AGE, ("ada", "grace", "alan")[number % 3]
    fields = {"owner": owner, "created_at": begun}
    if number in QUEUED:
        why = "needs 12 cores; no node has more than 8 free"
        tx.jobs.add(seed.job(id, name, now, JobState.QUEUED, reason=why, **fields))
        return
    if number in ENDED:
        end = now - timedelta(minutes=5 + number % 7)
        done = {"reason": "all workers ended with exit code 0", "finished_at": end, "updated_at": end}
        tx.jobs.add(seed.job(id, name, now, JobState.SUCCEEDED, exit_code=0, **fields, **done))
        return
    sizes = _sizes(number)
    document = {"replicas": Bounds(min=1, max=4, start=sizes[-1]), "steps": 30_000}
    running = seed.job(id, name, now, JobState.RUNNING, reason="stepping", **fields)
    tx.jobs.add(replace(running, document=replace(running.document, **document)))
    slow = {1: SLOWER} if number == STRAGGLER else None
    ends = [now - CHANGED, now - CHANGED + timedelta(minutes=6), now + AHEAD]
    since = begun
    for epoch, size in enumerate(sizes, start=1):
        last = epoch == len(sizes)
        until = ends[-1] if last else ends[epoch - 1]
        made = seed.other_world(id, size, since)
        world = replace(
            made, epoch=epoch, generation=epoch - 1,
            cause=Cause.START if epoch == 1 else Cause.PLAN, ended_at=None if last else until,
            members=tuple(replace(one, node=_node(number)) for one in made.members),
        )  # fmt: skip
        tx.worlds.put(world)
        steps_of(tx, id, epoch, size, since + timedelta(seconds=6), until, now, slow=slow)
        since = until
    agents = [
        Replica(
            id=one, node=_node(number), state=ReplicaState.RUNNING, generation=0, started_at=begun
        )
        for one in range(sizes[-1])
    ]
    tx.worlds.put_replicas(id, agents)
    _plans(tx, id, number, now)
    _hold(tx, id, number, sizes[-1], now)


def _sizes(number: int) -> tuple[int, ...]:
    """The replicas of each world of a job."""
    if number in SHRUNK:
        return (4, 3)
    return {STRAGGLER: (4,), ROLLED_BACK: (2, 4, 2), MISSED: (3, 4)}.get(number, (1 + number % 3,))


def _plans(tx: Transaction, id: JobId, number: int, now: datetime) -> None:
    at = now - CHANGED
    if number in SHRUNK:
        why = "3 replicas do 98 % of what 4 do; the fourth core is needed elsewhere."
        tx.plans.add(_plan(id, 4, 3, at + timedelta(seconds=9 * number), 1360, Verdict.KEPT, why))
    if number == MISSED:
        why = "A fourth replica is predicted to add 27 % to 1 370 examples/s."
        plan = _plan(id, 3, 4, at, 1740, Verdict.FELL_SHORT, why, kind=PlanKind.REQUEST)
        detail = "measured 1 405 of 1 740 examples/s promised"
        tx.plans.add(replace(plan, outcome=replace(plan.outcome, detail=detail)))
    if number == ROLLED_BACK:
        why = "4 replicas are predicted to do 1.87 times as much as 2."
        plan = _plan(id, 2, 4, at, 1810, Verdict.FELL_SHORT, why, state=PlanState.ROLLED_BACK)
        detail = "measured 1 405 of 1 810 examples/s promised"
        tx.plans.add(replace(plan, outcome=replace(plan.outcome, detail=detail)))
        back = "Generation 1 fell short: 1 405 of 1 810 examples/s, so back to 2 replicas."
        tx.plans.add(
            replace(
                _plan(id, 4, 2, at + timedelta(minutes=6), None, Verdict.KEPT, back),
                generation=2,
                kind=PlanKind.ROLLBACK,
            )
        )


def _plan(
    id: JobId,
    current: int,
    target: int,
    at: datetime,
    promised: float | None,
    verdict: Verdict,
    why: str,
    *,
    state: PlanState = PlanState.VERIFIED,
    kind: PlanKind = PlanKind.RESIZE,
) -> seed.ScalePlan:
    promise = None if promised is None else seed.promise(promised, promised * 0.05)
    made = seed.measured_plan(
        1, current, target, at, state, promise, at,
        measured=RATE[target], verdict=verdict, epoch=2, reason=why, kind=kind,
    )  # fmt: skip
    return replace(made, job=id)


def _hold(tx: Transaction, id: JobId, number: int, size: int, now: datetime) -> None:
    here = Allocation(replicas=size)
    if number == STRAGGLER:
        code, why = (
            "straggler",
            "Rank 1 is 35 % slower than its peers; more replicas would wait for it too.",
        )
        then = f"Look at {_node(number)}: what else runs there?"
    else:
        other = f"{size + 1} replicas would add" if size < 4 else "3 replicas would save"
        code, why = "not-worth-it", f"{other} less than 5 %; a restart costs more."
        then = "Brain looks again at every turn."
    rate = RATE[size] / (SLOWER if number == STRAGGLER else 1)
    seen = Evidence(label=f"Measured at {size}, 231 windows", value=quantity(rate, "examples/s"))
    tx.plans.decide(
        id,
        Recommendation(
            current=here,
            target=here,
            measured=seed.promise(rate, 9),
            explanation=Explanation(code=code, reason=why, next_step=then, evidence=(seen,)),
            decided_at=now - timedelta(seconds=20),
        ),
    )


def _node(number: int) -> NodeName:
    """Where a job runs: on any node but the silent one."""
    return NodeName(f"node-{(1, 2, 3, 4, 5, 7, 8, 9)[number % 8]}")


def _id(number: int) -> JobId:
    return JobId(f"0197f000-0000-7000-8000-{number:012x}")


@contextmanager
def served() -> Iterator[Served]:
    """A Brain with the busy fleet."""
    with tempfile.TemporaryDirectory(prefix="brain-busy-") as folder:
        url = f"sqlite:///{Path(folder) / 'brain.db'}"
        prepare(url)
        with closing(SqlStores(url)) as stores:
            fleet(stores, datetime.now(UTC))
        running = Served(Path(folder))
        running.start()
        try:
            yield running
        finally:
            running.stop()


def take(running: Served, folder: Path) -> None:
    """Pictures of three pages in both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    rolled_back = f"{PROJECTS[ROLLED_BACK % 4]}-{ROLLED_BACK + 1:02d}"
    pages = {"overview": "overview", "jobs": "jobs", "job": f"jobs/{rolled_back}"}
    with launched() as browser:
        for theme in THEMES:
            with visit(browser, running, theme=theme) as seen:
                for name, address in pages.items():
                    seen.page.goto(f"{running.url}/#/{address}")
                    ready = ".overlay text.rd" if name == "job" else ".jobs tbody tr"
                    expect(seen.page.locator(ready).first).to_be_visible()
                    seen.page.mouse.move(0, 0)
                    seen.page.wait_for_timeout(1_000)  # what is loaded after the first answer
                    seen.page.screenshot(path=folder / f"{name}-{theme}.png")


def main() -> None:
    """Serve the busy fleet, or take its pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=Path, help="directory for the pictures")
    folder = parser.parse_args().shots
    expect.set_options(timeout=PATIENCE)
    with served() as running:
        if folder:
            take(running, folder)
            return
        print(f"{running.url}/#signin={code(running)}", flush=True)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
