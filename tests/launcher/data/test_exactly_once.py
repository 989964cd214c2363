"""Whatever joins, leaves, dies or takes over: the network has every example once per epoch."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.data.ledger import ShardTerms
from tests.launcher.data.company import NAME, Company

TERMS = st.builds(
    ShardTerms,
    name=st.just(NAME),
    size=st.integers(1, 40),
    shard=st.integers(1, 9),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 3),
    shuffle=st.booleans(),
)
NUMBERS = st.integers(0, 5)
IN_PROCESS = ["train", "train", "train", "join", "kill", "leave", "tell", "over", "moved", "lost"]
ANYTHING = [*IN_PROCESS, "save", "save", "restart"]


def happens(kinds: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """What may happen, each with a number that says to whom, or how many."""
    return st.lists(st.tuples(st.sampled_from(kinds), NUMBERS), max_size=40)


def happen(company: Company, what: str, number: int) -> None:
    """One thing."""
    workers = company.workers
    worker = workers[number % len(workers)]
    match what:
        case "train" | "lost":
            company.train(worker, number + 1, lost=what == "lost", disk=number % 2 == 0)
        case "join":
            company.grow()
        case "kill" if len(workers) > 1:
            company.kill(worker, asking=number % 2 == 1)
        case "leave" if len(workers) > 1:
            company.leave(worker)
        case "tell":
            company.tell_books()
        case "over":
            company.take_over(disk=True)
        case "moved":  # agents know the rest, as long as they live
            company.take_over(disk=False)
        case "save":
            company.save()
        case "restart":
            company.restart(1 + number)


def finish(company: Company) -> None:
    """Train what is left."""
    for _ in range(500):
        for worker in company.workers:
            company.train(worker, 3)
        if all(worker.span is None for worker in company.workers):
            return
    raise AssertionError("it never ends")


def every_example_once(terms: ShardTerms) -> Counter[tuple[int, int]]:
    """What a network has in it that was trained well."""
    return Counter((epoch, each) for epoch in range(terms.epochs) for each in range(terms.size))


@given(TERMS, st.integers(1, 4), happens(IN_PROCESS))
@settings(max_examples=100, deadline=None)
def test_while_processes_go_on_nothing_is_lost_or_repeated(
    terms: ShardTerms, workers: int, story: list[tuple[str, int]]
) -> None:
    company = Company(terms, workers)
    company.tell_books()
    for what, number in story:
        happen(company, what, number)
    finish(company)
    assert company.trained == every_example_once(terms)


@given(TERMS, st.integers(1, 4), happens(ANYTHING))
@settings(max_examples=100, deadline=None)
def test_what_a_checkpoint_has_is_trained_once_and_the_rest_again(
    terms: ShardTerms, workers: int, story: list[tuple[str, int]]
) -> None:
    company = Company(terms, workers)
    company.tell_books()
    for what, number in story:
        happen(company, what, number)
    finish(company)
    assert company.trained == every_example_once(terms)


def test_a_worker_that_dies_while_it_asks_for_a_shard_takes_no_example_with_it() -> None:
    terms = ShardTerms(name=NAME, size=40, shard=10, shuffle=False)
    company = Company(terms, 3)
    early, asking, _ = company.workers
    company.train(early, 5)
    company.train(asking, 10)
    company.kill(early)  # which leaves examples 5 to 10 to the next that asks
    company.kill(asking, asking=True)
    finish(company)
    assert company.trained == every_example_once(terms)
