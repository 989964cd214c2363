"""Clocks that are wrong, batches that are late: what instants become of their stamps."""

import pytest

from brain.clocks import SourceClock, beyond_latency, corrected, microseconds_of
from tests.builders import NOW, at


def seconds(value: float) -> int:
    """So many seconds in microseconds."""
    return round(value * 1e6)


def stamp(value: float) -> int:
    """The microseconds of so many seconds from NOW."""
    return microseconds_of(at(value))


def sent(*batches: tuple[list[float], float], clock: SourceClock | None = None) -> list[float]:
    """Where the stamps of batches of (stamps, offset) end up; all in seconds from NOW."""
    clock, found = clock or SourceClock(), list[float]()
    for stamps, offset in batches:
        instants, clock = corrected(clock, map(stamp, stamps), seconds(offset))
        found += [(instants[stamp(each)] - microseconds_of(NOW)) / 1e6 for each in stamps]
    return found


@pytest.mark.parametrize("offset", [600, -600, 1.5, -1.5])
def test_a_clock_that_is_off_is_corrected(offset: float):
    assert sent(([0, 1], offset)) == [offset, 1 + offset]


@pytest.mark.parametrize("offset", [0, 0.04, 1, -1])
def test_what_latency_explains_moves_nothing(offset: float):
    assert sent(([0, 1], offset)) == [0, 1]
    assert beyond_latency(offset) == 0


def test_jitter_of_the_offset_moves_nothing_and_reorders_nothing():
    batches = [([n / 100], 600 + jitter) for n, jitter in enumerate([0, 0.03, -0.9, 0.9, 0.01])]
    assert sent(*batches) == pytest.approx([600 + n / 100 for n in range(5)])


def test_jitter_around_the_tolerance_does_not_flap():
    assert sent(([0], 1.2), ([1], 0.8), ([2], 1.3)) == pytest.approx([1.2, 2.2, 3.2])


def test_after_a_batch_that_was_long_on_its_way_instants_still_rise():
    found = sent(([0, 1], 5), ([2, 3, 8], 0.01), ([9], 0.01))
    assert found == pytest.approx([5, 6, 6.000001, 6.000002, 8, 9])


def test_a_clock_that_was_set_forward_is_right_from_then_on():
    assert sent(([0, 1], 600), ([602, 603], 0)) == [600, 601, 602, 603]


def test_what_comes_late_gets_the_offset_that_its_source_had():
    assert sent(([0, 2], 600), ([1, 603], 0), ([602], 0)) == [600, 602, 601, 603, 602]


def test_what_is_known_moves_no_clock():
    _, clock = corrected(SourceClock(), [stamp(0)], seconds(600))
    assert corrected(clock, [stamp(0)], seconds(0))[1] == clock
