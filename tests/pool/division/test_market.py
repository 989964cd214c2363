"""Two kinds of jobs in one pool: accelerators are divided among some, cores among the others."""

from dataclasses import replace

from brain.pool.allocator import Curve, JobPlacement
from brain.pool.division import PoolMember, divide
from brain.pool.division.market import DivisibleNodes, markets
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.job import OptimizeMode
from brain.types.resources import Node, NodeName, Resources
from brain.types.sharing import PoolShares
from tests.builders import NOW, document, job, node

GIB = 2**30


def sharing(name: str, each: Resources, curve: Curve, *, on: int, kind: str = "t4") -> PoolMember:
    """A job of a pool with ``on`` replicas on the one node."""
    bounds, shared = Bounds(min=1, max=4), OptimizeMode.CLUSTER
    wants = document(name, resources=each, optimize_mode=shared, replicas=bounds)
    made = replace(job(name), document=wants)
    current = JobPlacement(kind, ("a",) * on) if on else None
    return PoolMember(job=made, curves={kind: curve}, current=current)


def machine(**capacity: int) -> Node:
    return node("a", capacity=Resources(**capacity), accelerator="t4")


def floor_of(one: Node, idle: Resources, free: Resources) -> DivisibleNodes:
    return DivisibleNodes(nodes=[one], free={NodeName("a"): free}, idle={NodeName("a"): idle})


def test_cores_that_an_accelerator_job_might_free_are_not_given_where_it_gives_nothing():
    """Its plan is not made, for nobody can take its GPU: who waits for it would wait for ever."""
    two, four = Resources(cpu_millis=1000, gpus=1), Resources(cpu_millis=4000, gpus=1)
    gives = sharing("gives", two, Curve.of([1, 2], [1.0, 1.01]), on=2)
    waits = sharing("waits", four, Curve.of([1], [1.0]), on=0)
    core = Resources(cpu_millis=1000)
    grows = sharing("grows", core, Curve.of([1, 3], [1.0, 9.0]), on=1, kind="cpu")
    idle = Resources(cpu_millis=1000, memory_bytes=GIB)
    free = Resources(cpu_millis=4000, memory_bytes=GIB, gpus=2)
    floor = floor_of(machine(cpu_millis=4000, memory_bytes=GIB, gpus=2), idle, free)

    division = divide(
        [gives, waits, grows], floor, PoolShares(), prices=None, settings=Settings(), now=NOW
    )

    assert all(set(made.after) <= set(division.changes) for made in division.changes.values())


def test_cores_are_counted_in_whole_thousandths():
    each = Resources(cpu_millis=2007)
    member = sharing("odd", each, Curve.of([1], [1.0]), on=0, kind="cpu")
    one = machine(cpu_millis=8028, memory_bytes=GIB)
    floor = floor_of(one, one.capacity, one.capacity)

    (market,) = markets([member], floor, PoolShares())

    assert (market.each["odd"], market.cluster.nodes[0].capacity) == (1, 4)
