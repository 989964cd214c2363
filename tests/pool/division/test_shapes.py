"""Over how many nodes a size is expected to be."""

from brain.models.job import fit
from brain.models.terms import Terms
from brain.pool.allocator import Placement
from brain.pool.division.members import member
from tests.models.test_job import point
from tests.optimizer.test_policies import situation


def goodput_of_four(*rooms: int) -> float:
    """Of a job with two replicas on one node that was slow with three over two."""
    points = (
        point(1, 30.0, accelerator="T4"),
        point(3, 35.0, accelerator="T4", nodes=2, epoch=2),
        point(2, 50.0, accelerator="T4", epoch=3),
    )
    model = fit(points[-1], points[:-1], terms=Terms(global_batch=64))
    here = situation({2: 50.0}, sizes=(1, 2, 3, 4), at=2, present=points[-1], model=model)
    made = member(here, current=Placement("T4", ("a", "a")), kinds=["T4"], rooms=rooms)
    found = {int(row[0]): float(row[2]) for row in made.curves["T4"].rows}
    return found[4]


def test_a_size_is_expected_on_as_few_nodes_as_have_room_for_it():
    assert goodput_of_four(4) > 1.3 * goodput_of_four(2, 2)


def test_where_no_room_is_known_it_is_as_packed_as_it_ever_was():
    assert goodput_of_four() == goodput_of_four(2, 2)
