"""Growths that would not wait: for half an hour after a move, or for nodes that nobody frees."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from brain.pool.allocator import JobPlacement
from brain.pool.division import Division, PoolMember, divide, member
from brain.pool.division.market import DivisibleNodes
from brain.pool.division.shapes import Spread
from brain.settings import Settings
from brain.types.job import JobState, OptimizeMode
from brain.types.resources import NodeName, Resources
from brain.types.sharing import PoolShares
from tests.builders import NOW, document, job, node
from tests.optimizer.test_policies import point, situation

GPU = Resources(gpus=1)
#: Four of them do nearly four times as much on one node, and half of that on two.
SCALES = {1: 100.0, 2: 195.0}


def running(name: str, at: Sequence[str], rates: dict[int, float], **fields: Any) -> PoolMember:
    """A job that was measured at each of ``rates`` and has replicas on the nodes ``at``."""
    wants = document(name, resources=GPU, optimize_mode=OptimizeMode.CLUSTER)
    here = replace(job(name, state=JobState.RUNNING), document=wants)
    size = len(at)
    seen = situation(
        rates,
        at=size,
        job=here,
        current=wants.sized(size),
        present=point(size, rates[size], accelerator="t4", nodes=len(set(at))),
        **fields,
    )
    current = JobPlacement("t4", tuple(at))
    return member(seen, current=current, kinds=["t4"], spread=Spread((4, 4), 4))


def divided(members: Sequence[PoolMember], **idle: int) -> Division:
    """Two nodes of four accelerators; the members may change, others hold what is not ``idle``."""
    free = {name: count for name, count in idle.items()}
    for one in members:
        for name in one.nodes:
            free[name] = free.get(name, 0) + 1
    floor = DivisibleNodes(
        nodes=[node(name, capacity=GPU.times(4), accelerator="t4") for name in ("a", "b")],
        free={NodeName(name): GPU.times(count) for name, count in free.items()},
        idle={NodeName(name): GPU.times(count) for name, count in idle.items()},
    )
    shares = PoolShares()
    return divide(members, floor, shares, prices=None, settings=Settings(), now=NOW)


def test_a_job_that_moved_lately_may_grow_on_other_nodes():
    moved = running("moved", ("a", "a"), SCALES, since_move_seconds=60.0)
    division = divided([moved], b=4)

    made = division.changes[moved.key]
    assert dict(made.nodes) == {"b": 4}


def test_a_growth_takes_what_is_idle_where_its_nodes_do_not_become_free():
    """Each of two is granted the node of the other, and neither lets go before it has its own."""
    by = {"flat": 0.1, "one": 0.5, "two": 0.5}
    at = {"flat": ("a",), "one": ("a",), "two": ("b", "b")}
    jobs = [
        running(name, at[name], {n: 100.0 * n**power for n in (1, 2)}, restart_seconds=1.0)
        for name, power in by.items()
    ]
    division = divided(jobs, a=2, b=2)

    assert [dict(made.nodes) for made in division.changes.values()] == [{"b": 3}]
