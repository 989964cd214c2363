"""What a job will need, out of jobs that were alike."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain.errors import BadInput
from brain.models.estimate import Past, PoolCapacity, PriceList, Script, WorldUse, estimate
from brain.models.estimate.past import likeness, nearest, script_of
from brain.models.estimate.sizes import thinned
from brain.models.fitting import Point
from brain.models.resources.cpu import CpuUsage
from brain.types.allocation import Bounds
from brain.types.estimate import Band, Estimate, EstimateQuestion, SizeEstimate
from brain.types.job import BatchBounds, JobDocument, JobId
from brain.types.resources import Resources
from tests.builders import NOW, document

GIB = 2**30
MINE = Script(owner="ada", name="train.py", text="a1", arguments=frozenset({"--lr=1"}))


def point(replicas: int = 1, *, seconds: float = 0.2, epoch: int = 1, **fields: Any) -> Point:
    """A world of single processes with a global batch of 64."""
    made: dict[str, Any] = {
        "processes": replicas,
        "accelerator": "cpu",
        "examples_per_step": 64.0,
        "relative_error": 0.01,
        "steps": 100,
        "last_step": 100,
        "until": NOW + timedelta(minutes=epoch),
    }
    return Point(epoch=epoch, replicas=replicas, step_seconds=seconds, **(made | fields))


def use(epoch: int = 1, *, millis: float = 900.0, **fields: Any) -> WorldUse:
    made: dict[str, Any] = {
        "nodes": 1,
        "replicas": 1,
        "cpu": CpuUsage().added([millis] * 20, at_seconds=0),
        "memory_bytes": 2.0 * GIB,
        "readings": 20,
    }
    return WorldUse(epoch=epoch, **(made | fields))


def past(name: str = "before", **fields: Any) -> Past:
    """A job of the same script that was measured with one replica and two."""
    made: dict[str, Any] = {
        "script": MINE,
        "succeeded": True,
        "points": (point(1), point(2, seconds=0.11, epoch=2)),
        "uses": (use(1), use(2)),
    }
    return Past(job=JobId(name), name=name, **(made | fields))


def wanted(**fields: Any) -> JobDocument:
    made: dict[str, Any] = {
        "command": ("python", "train.py", "--lr", "1"),
        "script_hash": "a1",
        "replicas": Bounds(min=1, max=4),
        "resources": Resources(cpu_millis=1000),
    }
    return document(**(made | fields))


def asked(
    *pasts: Past,
    question: EstimateQuestion | None = None,
    rooms: tuple[PoolCapacity, ...] = (
        PoolCapacity(accelerator="cpu", per_node=8, largest=8, now=8),
    ),
    prices: dict[str, float] | None = None,
    **fields: Any,
) -> Estimate:
    return estimate(
        wanted(**fields),
        question or EstimateQuestion(steps=1000),
        pasts,
        rooms,
        PriceList(prices=prices or {}),
        owner="ada",
    )


def row(answer: Estimate, replicas: int, on: str = "cpu") -> SizeEstimate:
    return next(r for r in answer.sizes if (r.replicas, r.accelerator) == (replicas, on))


def known(band: Band | None) -> Band:
    assert band is not None
    return band


def chosen(answer: Estimate) -> tuple[int, str] | None:
    return next(((r.replicas, r.accelerator) for r in answer.sizes if r.chosen), None)


def test_a_script_is_known_by_its_file_and_the_options_that_matter():
    found = script_of(
        JobDocument(name="x", command=("python", "src/train.py", "--steps", "9", "--model=bert")),
        "ada",
    )
    assert (found.name, found.arguments, found.network) == (
        "train.py",
        {"--model=bert"},
        "--model=bert",
    )


def test_likeness_falls_from_text_to_name_to_network_to_owner():
    edited = replace(MINE, text="b2")
    other = replace(MINE, name="other.py", text="c3")
    both = frozenset({"--model=bert"})
    levels = [
        likeness(MINE, MINE),
        likeness(MINE, edited),
        likeness(replace(MINE, arguments=both), replace(other, arguments=both)),
        likeness(MINE, other),
        likeness(MINE, replace(other, owner="bob")),
    ]
    assert [how for how, _ in levels] == sorted((how for how, _ in levels), reverse=True)
    assert levels[0][0] == 1.0
    assert levels[-1] == (0.0, "nothing")


def test_another_network_in_the_same_script_is_less_alike_than_an_edited_script():
    bert = replace(MINE, arguments=frozenset({"--model=bert"}))
    resnet = replace(MINE, arguments=frozenset({"--model=resnet"}))
    assert likeness(bert, resnet)[0] < likeness(MINE, replace(MINE, text="b2"))[0]


def test_jobs_of_the_owner_alone_do_not_count():
    (only,) = nearest(MINE, [past(script=replace(MINE, name="other.py", text="x"))])
    assert not only.alike


def test_unmeasured_jobs_are_no_neighbours():
    assert nearest(MINE, [past(points=(), uses=())]) == []


def test_the_time_of_a_measured_size_is_its_steps_times_its_step_time():
    answer = asked(past())
    finish = row(answer, 1).finish_seconds
    assert finish is not None
    assert finish.value == pytest.approx(1000 * 0.2, rel=0.03)
    assert finish.low < 200 < finish.high


def test_sizes_that_nobody_measured_explore():
    answer = asked(past())
    assert [row(answer, n).exploring for n in (1, 2, 4)] == [False, False, True]


def test_a_size_beyond_twice_the_largest_is_not_guessed():
    answer = asked(past(), replicas=Bounds(min=1, max=8))
    assert "more than twice the largest" in (row(answer, 8).undetermined or "")
    assert row(answer, 8).finish_seconds is None


def test_hours_and_money_follow_from_time_and_size():
    answer = asked(past(), prices={"cpu": 3.6})
    found = row(answer, 2)
    hours = known(found.finish_seconds).value * 2 / 3600
    assert known(found.accelerator_hours).value == pytest.approx(hours)
    assert known(found.cost).value == pytest.approx(3.6 * hours)


def test_without_a_price_nothing_is_said_of_money_but_how_to_get_it():
    answer = asked(past())
    assert row(answer, 1).cost is None
    assert any("--price cpu=" in sentence for sentence in answer.missing)


def test_a_doubling_that_brings_too_little_is_not_chosen():
    slow = past(points=(point(1), point(2, seconds=0.19, epoch=2)))
    assert chosen(asked(slow)) == (1, "cpu")


def test_a_job_that_scales_begins_with_more():
    fast = past(points=(point(1), point(2, seconds=0.1, epoch=2), point(4, seconds=0.05, epoch=3)))
    answer = asked(fast)
    assert chosen(answer) == (4, "cpu")
    assert answer.explanation is not None
    assert "1" in answer.explanation.reason


def test_what_is_not_chosen_says_why():
    answer = asked(past())
    assert all(r.why_not for r in answer.sizes if not r.chosen)


def test_a_deadline_asks_for_more_than_would_pay():
    slow = past(points=(point(1), point(2, seconds=0.15, epoch=2)))
    without = asked(slow)
    pressed = asked(slow, question=EstimateQuestion(steps=1000, deadline_seconds=180))
    assert chosen(without) == (1, "cpu")
    assert chosen(pressed) is not None
    assert chosen(pressed) > (1, "cpu")


def test_a_budget_that_nothing_meets_leaves_no_size_and_says_so():
    answer = asked(past(), prices={"*": 100.0}, question=EstimateQuestion(steps=1000, budget=0.01))
    assert chosen(answer) is None
    assert answer.explanation is None
    assert all("budget" in r.why_not or r.undetermined for r in answer.sizes)


def test_what_does_not_fit_the_pool_is_not_chosen():
    fast = past(points=(point(1), point(2, seconds=0.1, epoch=2), point(4, seconds=0.05, epoch=3)))
    answer = asked(fast, rooms=(PoolCapacity(accelerator="cpu", per_node=2, largest=2, now=1),))
    assert chosen(answer) == (2, "cpu")
    assert "does not fit" in row(answer, 4).why_not
    assert not row(answer, 2).fits_now


def test_a_job_larger_than_the_pool_is_told_so_although_nothing_like_it_was_measured():
    small = (PoolCapacity(accelerator="cpu", per_node=2, largest=2, now=2),)
    answer = asked(rooms=small, replicas=Bounds(min=4, max=4))

    assert "does not fit the pool, even when the pool is empty" in row(answer, 4).why_not


def test_a_kind_that_was_never_measured_is_named_and_not_guessed():
    rooms = tuple(
        PoolCapacity(accelerator=kind, per_node=8, largest=8, now=8) for kind in ("A100", "cpu")
    )
    answer = asked(past(), rooms=rooms)
    assert row(answer, 1, "A100").throughput is None
    assert any(sentence.startswith("A100: never measured on A100") for sentence in answer.missing)


def test_the_cheaper_kind_is_taken_where_it_makes_nearly_as_much():
    seen = past(points=(point(1, accelerator="H100", seconds=0.1), point(1, epoch=2)))
    rooms = tuple(
        PoolCapacity(accelerator=kind, per_node=8, largest=8, now=8) for kind in ("H100", "cpu")
    )
    dear = asked(seen, rooms=rooms, prices={"H100": 10.0, "cpu": 1.0}, replicas=Bounds())
    cheap = asked(seen, rooms=rooms, prices={"H100": 1.5, "cpu": 1.0}, replicas=Bounds())
    assert chosen(dear) == (1, "cpu")
    assert chosen(cheap) == (1, "H100")


def test_a_less_alike_job_makes_wider_bands():
    def width(one: Past) -> float:
        rate = row(asked(one), 1).throughput
        assert rate is not None
        return rate.high / rate.low

    assert width(past(script=replace(MINE, text="b2"))) > width(past())


def test_several_runs_narrow_the_band():
    def width(*pasts: Past) -> float:
        rate = row(asked(*pasts), 1).throughput
        assert rate is not None
        return rate.high / rate.low

    assert width(past("a"), past("b"), past("c")) < width(past("a"))


def test_a_month_old_run_counts_as_much_as_one_of_yesterday():
    old = tuple(replace(p, until=p.until - timedelta(days=30)) for p in past().points)
    assert row(asked(past(points=old)), 2).throughput == row(asked(past()), 2).throughput


def test_a_script_that_keeps_its_local_batch_makes_all_of_its_steps():
    weak = past(points=(point(1), point(2, seconds=0.22, epoch=2, examples_per_step=128.0)))
    finish = row(asked(weak), 2).finish_seconds
    assert finish is not None
    assert finish.value == pytest.approx(1000 * 0.22, rel=0.05)


def test_work_that_nobody_declares_is_that_of_jobs_before():
    answer = asked(past(steps=500.0), question=EstimateQuestion())
    assert answer.work is not None
    assert answer.work.amount.value == 500 * 64
    assert answer.work.amount.low < 500 * 64 < answer.work.amount.high


def test_epochs_scale_the_work_of_jobs_before():
    answer = asked(past(steps=500.0, epochs=2), question=EstimateQuestion(), epochs=6)
    assert answer.work is not None
    assert answer.work.amount.value == 3 * 500 * 64


def test_failed_jobs_say_nothing_of_the_work():
    answer = asked(past(steps=500.0, succeeded=False), question=EstimateQuestion())
    assert answer.work is None
    assert any("give --steps" in sentence for sentence in answer.missing)
    assert row(answer, 1).throughput is not None


def test_examples_per_epoch_say_the_work_exactly():
    answer = asked(past(), question=EstimateQuestion(examples_per_epoch=6400.0), epochs=2)
    assert answer.work is not None
    assert answer.work.amount.value == 12_800


def test_with_no_history_it_explores_and_says_how_to_get_some():
    answer = asked()
    assert answer.exploring
    assert "--probe" in answer.missing[0]
    assert all(r.throughput is None and r.exploring for r in answer.sizes)
    assert chosen(answer) is None


def test_processor_and_memory_of_an_unknown_script_are_those_of_its_owners_other_jobs():
    answer = asked(past(script=replace(MINE, name="other.py", text="x")))
    assert answer.exploring
    assert row(answer, 1).cpu_millis is not None


def test_a_replica_is_given_what_most_of_its_like_used_and_some_more():
    given = row(asked(past()), 1)
    assert 900 < known(given.cpu_millis).value < 1.3 * 900
    assert known(given.memory_bytes).value == pytest.approx(1.15 * 2 * GIB)


def test_memory_that_leaks_is_given_for_the_whole_run():
    leaking = use(memory_bytes=6.0 * GIB, hourly_bytes=tuple(GIB * (1.0 + h) for h in range(6)))
    short = row(asked(past(uses=(leaking,)), question=EstimateQuestion(steps=10)), 1).memory_bytes
    long = row(
        asked(past(uses=(leaking,)), question=EstimateQuestion(steps=100_000)), 1
    ).memory_bytes
    assert known(long).value > known(short).value + 4 * GIB


def test_gradients_measured_over_nodes_are_scaled_to_more_nodes():
    spread = past(
        points=(point(2, nodes=2, seconds=0.2),),
        uses=(use(nodes=2, sent_bytes_per_second=1e9),),
    )
    answer = asked(spread, rooms=(PoolCapacity(accelerator="cpu", per_node=1, largest=8, now=8),))
    assert known(row(answer, 2).network_bytes_per_second).value == pytest.approx(1e9, rel=0.05)
    assert known(row(answer, 4).network_bytes_per_second).value > 1.2e9


def test_gradients_that_were_never_seen_are_taken_from_the_checkpoint():
    answer = asked(
        past(checkpoint_bytes=3e8),
        rooms=(PoolCapacity(accelerator="cpu", per_node=1, largest=8, now=8),),
    )
    band = known(row(answer, 2).network_bytes_per_second)
    assert band.high == pytest.approx(3 * band.low)
    assert any("size of the checkpoint" in sentence for sentence in answer.missing)


def test_a_batch_too_large_for_the_device_is_not_chosen():
    full = past(
        points=(point(2), point(4, seconds=0.11, epoch=2)),
        uses=(
            use(1, device_bytes=10.0 * GIB, device_total_bytes=16.0 * GIB),
            use(2, device_bytes=6.0 * GIB, device_total_bytes=16.0 * GIB),
        ),
    )
    answer = asked(full)
    assert "GiB" in row(answer, 1).why_not
    assert chosen(answer) != (1, "cpu")


def test_another_global_batch_than_was_measured_is_told():
    answer = asked(past(), batch=BatchBounds(global_size=128))
    assert any(sentence.startswith("Batch:") for sentence in answer.missing)


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (EstimateQuestion(steps=0), "steps"),
        (EstimateQuestion(examples=float("nan")), "examples"),
        (EstimateQuestion(steps=1, examples=1.0), "steps"),
        (EstimateQuestion(budget=-1.0), "budget"),
        (EstimateQuestion(prices={"A100": float("inf")}), "prices.A100"),
    ],
)
def test_questions_that_cannot_be_meant_are_refused_by_name(question: EstimateQuestion, field: str):
    with pytest.raises(BadInput) as refused:
        asked(past(), question=question)
    assert refused.value.field == field


def test_points_that_say_nothing_leave_no_model():
    answer = asked(past(points=(point(1, seconds=float("nan")),)))
    assert answer.exploring
    assert answer.missing


def test_many_sizes_are_thinned_to_doublings():
    assert thinned(range(1, 1001)) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]


def test_a_trial_with_twice_the_batch_does_not_look_like_a_batch_that_grows():
    twice = past(
        "twice",
        script=replace(MINE, batches=frozenset({"--batch=128"})),
        points=(point(1, seconds=0.38, examples_per_step=128.0),),
    )
    alone = past(points=(point(2, seconds=0.11),))
    one, two = (row(asked(twice, alone), n) for n in (1, 2))
    assert known(two.finish_seconds).value == pytest.approx(110, rel=0.05)
    # Half as many processes keep the 64 examples: about twice as long, not as for 32.
    assert known(one.finish_seconds).value > 130


def test_jobs_that_waited_for_data_are_given_processor_before_replicas():
    hungry = use(stepped_seconds=100, waited_seconds=50)
    answer = asked(past(uses=(hungry,), reserved_millis=950.0))
    # Loading took as long as computing: twice the processor, and some more.
    assert known(row(answer, 1).cpu_millis).value == pytest.approx(2 * 900 / 0.85, rel=0.06)
    assert any(sentence.startswith("Loading: ") for sentence in answer.missing)


def test_waiting_alone_is_no_want_of_processor():
    answer = asked(past(uses=(use(stepped_seconds=100, waited_seconds=50),), reserved_millis=4000))
    assert known(row(answer, 1).cpu_millis).value < 1.3 * 900


def test_a_batch_that_grows_beyond_its_worth_is_not_chosen():
    def weak(noise: float | None) -> Past:
        seen = [
            point(n, seconds=0.2, epoch=n, examples_per_step=64.0 * n, noise_scale=noise)
            for n in (1, 2, 4)
        ]
        return past(points=tuple(seen))

    assert chosen(asked(weak(None))) == (4, "cpu")
    assert chosen(asked(weak(6.4))) == (1, "cpu")


def test_what_a_failed_job_used_is_no_measure_while_others_are_known():
    starved = past("starved", failed=True, uses=(use(memory_bytes=64.0 * GIB),))
    assert known(row(asked(starved, past()), 1).memory_bytes).value < 3 * GIB
    assert known(row(asked(starved), 1).memory_bytes).value > 60 * GIB


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("--lr 0.1", "--lr 1e-3", True),
        ("lr=0.1 --layers=12", "lr=3 --layers=48", True),
        ("--arch vgg11", "--arch vgg19", False),
        ("--data cifar-10", "--data cifar-100", False),
        ("--lr 0.1", "--rate 0.1", False),
        ("--steps 10 --seed 1", "", True),
        ("-o out --resume-from a --log_dir b", "", True),
        ("--optimizer adam", "--optimizer sgd", False),
    ],
)
def test_a_script_runs_again_where_its_arguments_differ_in_numbers_alone(
    one: str, other: str, same: bool
):
    scripts = [
        script_of(JobDocument(name="x", command=("python", "train.py", *given.split())), "ada")
        for given in (one, other)
    ]

    assert scripts[0].runs_again(scripts[1]) is same
    assert not scripts[0].runs_again(replace(scripts[1], owner="bob"))
