"""Applications out of measured tables."""

import pytest

from brain import errors
from brain.simulator.applications import DeviceKind, progress
from brain.simulator.tables import Measured, measured

T4, A100 = DeviceKind(name="t4"), DeviceKind(name="a100")
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,10,0.1,0.0
1,20,0.2,0.0
2,10,0.12,0.02
12,10,0.20,0.10
21,10,0.22,0.10
"""
SCALE = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,8,10,0.3,0.2
4,8,20,0.4,0.2
8,8,10,0.4,0.3
8,8,20,0.5,0.3
"""
RUN = """progress,iteration,metric,grad_sqr,grad_var
1000,1000,0.5,2.0,4.0
2000,2000,0.6,1.0,8.0
"""
FILES = {"placements.csv": PLACEMENTS, "scalability.csv": SCALE, "validation-20.csv": RUN}


def read(**changes: str | None) -> Measured:
    texts = {**FILES, **{name.replace("_", "-") + ".csv": text for name, text in changes.items()}}
    return measured("net", {n: t for n, t in texts.items() if t is not None}, ["t4"])


def test_what_was_measured_is_given_back():
    assert read().seconds(T4, (1,), 10, 1) == pytest.approx(0.1)
    assert read().seconds(T4, (1,), 15, 1) == pytest.approx(0.15)


def test_the_order_of_nodes_makes_no_difference():
    assert read().seconds(T4, (1, 2), 10, 1) == pytest.approx(0.21)
    assert read().seconds(T4, (2, 1), 10, 1) == pytest.approx(0.21)


def test_micro_batches_before_the_last_do_not_synchronise():
    assert read().seconds(T4, (2,), 10, 3) == pytest.approx(0.12 + 2 * 0.10)


def test_what_lies_between_measurements_lies_between_their_times():
    assert 0.3 < read().seconds(T4, (2, 2, 1, 1, 1, 1), 10, 1) < 0.4


def test_work_is_counted_in_the_first_batch_and_noise_by_epoch():
    net = read()
    assert (net.first_batch, net.epochs, net.examples) == (20, 2, 40_000)
    assert [net.noise(share, 20) for share in (0.0, 0.9, 1.0)] == [40.0, 160.0, 160.0]


def test_a_device_holds_what_was_measured_on_it():
    larger = PLACEMENTS + "1,80,0.3,0.0\n"
    net = measured("net", {**FILES, "placements-a100.csv": larger}, ["t4", "a100"])
    assert (net.holds(T4), net.holds(A100)) == (20, 80)
    assert progress(net, A100, (1,), 80, 0.0) > progress(net, T4, (1,), 80, 0.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"placements": None}, r"has neither placements-t4.csv nor placements.csv; rename"),
        ({"validation_20": None}, r"has no validation-BATCH.csv; add one per batch size"),
        ({"placements": "placement,local_bsz,step_time\n1,1,1\n"}, r"no column 'sync_time'"),
        ({"placements": PLACEMENTS.replace("0.12", "fast")}, r"a cell that is not a number"),
        ({"placements": PLACEMENTS.replace("0.12", "0")}, r"for nodes 't4' is not above 0"),
        ({"placements": PLACEMENTS.replace("12,10", "x,10")}, "placement 'x' is not a number"),
        ({"scalability": SCALE.replace("0.4", "nan")}, "has a value that is not a finite number"),
        ({"validation_20": "progress,iteration,metric,grad_sqr,grad_var\n"}, r"is empty"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(changes: dict[str, str | None], said: str):
    with pytest.raises(errors.BadInput, match=said):
        read(**changes)
