"""A sampler's ranks together train each epoch's order batch by batch, however the world changes."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain.errors import BadInput
from launcher.data import Sampler, plan, weight
from launcher.data.order import ExampleOrder

WORLDS = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def sampler(
    size: int = 20, batch: int = 6, *, rank: int = 0, world: int = 1, **more: object
) -> Sampler:
    """One rank's."""
    return Sampler(size, global_batch=batch, rank=rank, world=world, **more)  # type: ignore[arg-type]


def next_step(ranks: Sequence[Sampler]) -> list[int]:
    """What all ranks train in the next step, in the order of ranks; fillers do not count."""
    trained: list[int] = []
    for each in ranks:
        for indices, micro in each.over(each):
            trained += indices[: micro.size]
            if micro.last:
                break
    for each in ranks:
        each.step()
    return trained


@given(st.integers(1, 300), st.integers(0, 9), st.integers(0, 3))
def test_an_order_has_every_example_once(size: int, seed: int, epoch: int) -> None:
    order = ExampleOrder(size, seed=seed, epoch=epoch)
    assert sorted(order[place] for place in range(size)) == list(range(size))
    assert all(order.place_of(order[place]) == place for place in range(size))


def test_orders_of_two_epochs_and_of_two_seeds_differ() -> None:
    orders = [ExampleOrder(100, seed=s, epoch=e) for s, e in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(order[place] for place in range(100)) for order in orders}) == 3


def test_any_example_may_be_first() -> None:
    firsts = [ExampleOrder(10, seed=seed, epoch=0)[0] for seed in range(2000)]
    assert all(150 < firsts.count(each) < 250 for each in range(10))


def test_unshuffled_it_goes_through_as_it_stands() -> None:
    assert [i for micro in sampler(5, 2, shuffle=False) for i in micro] == [0, 1, 2, 3, 4]


@given(st.integers(1, 60), st.integers(1, 17), st.integers(1, 6), WORLDS)
@settings(max_examples=60, deadline=None)
def test_after_k_steps_the_first_k_global_batches_are_consumed(
    size: int, batch: int, most: int, worlds: list[int]
) -> None:
    order = ExampleOrder(size, seed=3, epoch=0)
    ranks, trained = [sampler(size, batch, seed=3, most_per_replica=most)], list[int]()
    for world in worlds:
        if ranks[0].epoch:
            break
        state = ranks[0].state_dict()
        ranks = [
            sampler(size, batch, seed=3, most_per_replica=most, rank=r, world=world)
            for r in range(world)
        ]
        for each in ranks:
            each.load_state_dict(state)
        trained += next_step(ranks)
    assert trained == [order[place] for place in range(min(size, batch * len(worlds)))]


@given(st.integers(1, 40), st.integers(1, 9), WORLDS)
@settings(max_examples=60, deadline=None)
def test_epochs_across_changes_have_every_example_once(
    size: int, batch: int, worlds: list[int]
) -> None:
    living = [sampler(size, batch)]
    trained: list[int] = []
    step = 0
    while living[0].epoch < 2:
        world = worlds[step % len(worlds)]
        state, step = living[0].state_dict(), step + 1
        living = living[:world]
        for rank, each in enumerate(living):
            each.reshard(rank, world)
        for rank in range(len(living), world):
            living.append(sampler(size, batch, rank=rank, world=world))
            living[-1].load_state_dict(state)
        trained += next_step(living)
    assert sorted(trained) == sorted(list(range(size)) * 2)


def test_without_its_last_batch_an_epoch_leaves_out_what_fills_none() -> None:
    one = sampler(20, 6, keep_last=False)
    assert [len(micro) for micro in one] == [6, 6, 6]
    for _ in range(3):
        one.step()
    assert (one.epoch, one.consumed) == (1, 0)


def test_its_length_is_what_it_gives() -> None:
    one = sampler(20, 6, most_per_replica=2, rank=1, world=2)
    one.step()
    assert len(one) == len(list(one)) == 5
    assert one.steps_left == 3


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_a_plan_gives_every_example_to_one_rank(batch: int, world: int, most: int) -> None:
    shares = plan(batch, world, most)
    assert sum(map(sum, shares)) == batch
    assert len({len(sizes) for sizes in shares}) == 1
    assert max(map(max, shares)) <= most


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_weighted_and_averaged_over_ranks_gradients_are_those_of_the_global_batch(
    batch: int, world: int, most: int
) -> None:
    gradients = iter([float(each**2 + 1) for each in range(batch)])
    of_ranks = [
        sum(weight(size, batch, world) * _mean(gradients, size) for size in sizes)
        for sizes in plan(batch, world, most)
    ]
    whole = sum(each**2 + 1 for each in range(batch)) / batch
    assert sum(of_ranks) / world == pytest.approx(whole)


def _mean(gradients: Iterator[float], size: int) -> float:
    return sum(next(gradients) for _ in range(size)) / size if size else 12.5


def test_the_last_batch_is_weighed_by_its_own_size() -> None:
    weights = [micro.weight for _, micro in _all(sampler(8, 6, most_per_replica=3))]
    assert weights == [0.5, 0.5, 1.0]


def _all(one: Sampler) -> Iterator[tuple[list[int], object]]:
    for indices, micro in one.over(one):
        yield indices, micro
        if micro.last:
            one.step()


def test_a_rank_without_examples_gets_a_filler_that_weighs_nothing() -> None:
    indices, micro = next(sampler(1, 1, rank=1, world=2).over([[0]]))
    assert (indices, micro.size, micro.weight, micro.last) == ([0], 0, 0.0, True)


def test_what_was_read_ahead_for_another_world_is_dropped() -> None:
    one, seen = sampler(12, 4, shuffle=False), list[list[int]]()
    for ahead, _ in one.over(Ahead(one)):
        seen.append(ahead)
        one.step()
        if one.consumed == 4:
            one.reshard(1, 2)
    assert seen == [[0, 1, 2, 3], [6, 7], [10, 11]]


class Ahead:
    """A loader that has read everything before it gives the first batch."""

    def __init__(self, one: Sampler) -> None:
        self._one = one

    def __iter__(self) -> Iterator[list[int]]:
        return iter(list(self._one))


def test_a_step_that_failed_is_given_again_to_those_who_are_left() -> None:
    one = sampler(8, 4, shuffle=False, rank=0, world=2)
    batches = one.over(one)
    before = next(batches)[0]
    one.reshard(0, 1)
    assert (before, next(batches)[0]) == ([0, 1], [0, 1, 2, 3])


def test_an_epoch_without_steps_is_an_error_that_says_what_to_call() -> None:
    one = sampler()
    with pytest.raises(BadInput, match=r"call sampler\.step"):
        list(one.over(one))


def test_other_data_than_the_checkpoints_is_refused_by_name() -> None:
    with pytest.raises(
        BadInput, match="size: the checkpoint was trained with 20, but this sampler has 21"
    ):
        sampler(21).load_state_dict(sampler(20).state_dict())


def test_another_global_batch_goes_on_from_what_is_consumed() -> None:
    one = sampler(20, 6, shuffle=False)
    one.step()
    other = sampler(20, 10, shuffle=False)
    other.load_state_dict(one.state_dict())
    assert list(other) == [list(range(6, 16)), list(range(16, 20))]


def test_a_larger_batch_that_leaves_nothing_ends_the_epoch() -> None:
    one = sampler(20, 6, keep_last=False)
    for _ in range(2):
        one.step()
    other = sampler(20, 20, keep_last=False)
    other.load_state_dict(one.state_dict())
    assert (other.epoch, other.consumed) == (1, 0)


def test_nothing_to_sample_is_refused() -> None:
    with pytest.raises(BadInput, match="3 examples do not fill one batch of 4"):
        sampler(3, 4, keep_last=False)


def test_rank_and_world_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert next(iter(Sampler(4, global_batch=4, shuffle=False))) == [2, 3]


def test_a_loader_of_torch_takes_it_for_its_batches() -> None:
    data = pytest.importorskip("torch.utils.data")
    one = sampler(10, 4, most_per_replica=2, shuffle=False)
    loader = data.DataLoader(range(10), batch_sampler=one)
    sums = []
    for batch, micro in one.over(loader):
        sums.append(int(batch.sum()))
        if micro.last:
            one.step()
    assert sums == [1, 5, 9, 13, 17]
