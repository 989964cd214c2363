"""Over how many nodes a size is expected to be."""

import pytest

from brain.models.job_fit import fit
from brain.models.sizes import Size
from brain.models.terms import SpeedTerms
from brain.pool.allocator import JobPlacement
from brain.pool.division.members import member
from brain.pool.division.shapes import Spread, shapes
from tests.models.test_job import point
from tests.optimizer.test_policies import situation


def goodput_of_four(*rooms: int) -> float:
    """Of a job with two replicas on one node that was slow with three over two."""
    points = (
        point(1, 30.0, accelerator="T4"),
        point(3, 35.0, accelerator="T4", nodes=2, epoch=2),
        point(2, 50.0, accelerator="T4", epoch=3),
    )
    model = fit(points[-1], points[:-1], terms=SpeedTerms(global_batch=64))
    here = situation({2: 50.0}, sizes=(1, 2, 3, 4), at=2, present=points[-1], model=model)
    made = member(here, current=JobPlacement("T4", ("a", "a")), kinds=["T4"], spread=Spread(rooms))
    found = {int(row[0]): float(row[2]) for row in made.curves["T4"].rows}
    return found[4]


def test_a_size_is_expected_on_as_few_nodes_as_have_room_for_it():
    assert goodput_of_four(4) > 1.3 * goodput_of_four(2, 2)


def test_where_no_room_is_known_it_is_as_packed_as_it_ever_was():
    assert goodput_of_four() == pytest.approx(goodput_of_four(2, 2))


def test_a_size_is_looked_at_on_the_fewest_nodes_and_on_those_that_have_room_now():
    here = situation({2: 50.0}, sizes=(1, 2, 4), at=2)

    found = [(size.replicas, size.nodes) for size in shapes(here, (1, 2, 4), Spread((3, 2), 4))]

    assert found == [(1, 1), (2, 1), (4, 1), (4, 2)]


def test_a_size_that_fell_short_over_two_nodes_is_tried_on_one():
    here = situation({2: 50.0}, sizes=(2, 4), at=2, disappointed={4: 2})

    found = [(size.replicas, size.nodes) for size in shapes(here, (2, 4), Spread((3, 2), 4))]

    assert found == [(2, 1), (4, 1)]


def test_the_present_size_counts_as_it_is_spread_and_on_fewer_nodes():
    here = situation({2: 50.0}, at=2, present=point(2, 50.0, nodes=2))
    short = situation({2: 50.0}, at=2, present=point(2, 50.0, nodes=2), disappointed={2: 1})

    spread, packed = (Size(replicas=2, nodes=nodes) for nodes in (2, 1))
    assert shapes(here, (2,), Spread((4, 4), 4)) == [spread, packed]
    assert shapes(short, (2,), Spread((4, 4), 4)) == [spread]
