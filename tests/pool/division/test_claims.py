"""Who takes room waits for those that free it, and for nobody else."""

from brain.pool.division.claims import Claims
from brain.types.resources import NodeName, Resources

A, B = NodeName("a"), NodeName("b")
ONE = Resources(cpu_millis=1000, memory_bytes=4, gpus=1)


def claims(**idle: int) -> Claims:
    """Nodes with room for so many replicas."""
    return Claims({NodeName(name): ONE.times(count) for name, count in idle.items()})


def test_what_is_idle_needs_nobody():
    assert claims(a=2).take({A: 2}, ONE) == ()


def test_what_is_taken_is_gone():
    room = claims(a=2)
    room.take({A: 2}, ONE)

    assert room.take({A: 1}, ONE) is None


def test_what_is_offered_comes_after_what_is_idle():
    room = claims(a=1)
    room.offer("small", {A: ONE})
    room.offer("large", {A: ONE.times(2)})

    assert room.take({A: 2}, ONE) == ("small",)
    assert room.take({A: 2}, ONE) == ("large",)


def test_room_on_another_node_is_no_room():
    room = claims(a=1, b=3)

    assert room.take({A: 2}, ONE) is None
    assert room.take({A: 1, B: 3}, ONE) == ()


def test_a_replica_whose_memory_does_not_fit_takes_nothing():
    room = claims(a=2)

    assert room.take({A: 1}, Resources(cpu_millis=1000, memory_bytes=9, gpus=1)) is None
    assert room.take({A: 2}, ONE) == ()


def test_a_node_that_is_overdrawn_has_no_room():
    overdrawn = Claims({A: Resources(cpu_millis=-1000, memory_bytes=4, gpus=1)})

    assert overdrawn.take({A: 1}, ONE) is None
