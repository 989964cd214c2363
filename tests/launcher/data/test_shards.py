"""What a script sees of shards: examples, the state for its checkpoint, and errors that help."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from brain.errors import BadInput, Conflict, Unavailable
from launcher.coordinator.shards import ShardServer
from launcher.coordinator.world.peers import Peers
from launcher.data import Shards, TextFile, shards
from launcher.data.client import Alone, client
from launcher.data.ledger import ShardLedger, ShardSpan, ShardTerms
from launcher.data.questions import ShardQuestion
from launcher.data.serving import Serving
from launcher.values.replica import JobPlace


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test is a process of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    client.cache_clear()
    yield
    client.cache_clear()


def text(path: Path, lines: int) -> Path:
    path.write_text("".join(f"line {number}\n" for number in range(lines)))
    return path


def terms(**fields: object) -> ShardTerms:
    return ShardTerms(**({"name": "train", "size": 10, "shard": 4} | fields))  # type: ignore[arg-type]


# --- alone ---------------------------------------------------------------------------------


def test_all_indices_come_once_an_epoch() -> None:
    assert sorted(shards("train", 10, shard=3, epochs=2)) == sorted(list(range(10)) * 2)


def test_datasets_of_two_names_know_nothing_of_each_other() -> None:
    one, other = shards("one", 3, shuffle=False), shards("other", 3, shuffle=False)
    assert [one.take(1), other.take(1), one.take(1)] == [[0], [0], [1]]


def test_epochs_have_orders_of_their_own_and_seeds_too() -> None:
    orders = [tuple(shards(f"{seed}", 100, shard=1, epochs=2, seed=seed)) for seed in (0, 1)]
    assert len({order[at : at + 100] for order in orders for at in (0, 100)}) == 4


def test_a_sequence_gives_its_items() -> None:
    assert list(shards("letters", "abc", shuffle=False)) == ["a", "b", "c"]


def test_what_was_handed_out_before_the_state_is_not_handed_out_after_it() -> None:
    lines = iter_of = shards("train", 10, shard=4)
    before = [next(iter(iter_of)) for _ in range(5)]
    state = json.loads(json.dumps(lines.state_dict()))
    client.cache_clear()
    again = shards("train", 10, shard=4)
    again.load_state_dict(state)
    assert sorted(before + list(again)) == list(range(10))


def test_it_tells_which_example_it_handed_out_last() -> None:
    numbers = shards("train", 10, shard=4, shuffle=False, epochs=2)
    assert [(numbers.epoch, numbers.index) for _ in numbers][8:12] == [
        (0, 8),
        (0, 9),
        (1, 0),
        (1, 1),
    ]


def test_taking_ends_with_nothing() -> None:
    numbers = shards("train", 6, shard=4, shuffle=False)
    assert [numbers.take(3) for _ in range(4)] == [[0, 1, 2], [3], [4, 5], []]
    assert numbers.over


def test_a_dataset_that_hundreds_of_others_followed_has_its_state_and_closes() -> None:
    every = [shards(f"file-{number}", 2) for number in range(250)]
    assert [len(list(each)) for each in every] == [2] * 250
    first = every[0]
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    again = shards("file-0", 2)
    again.load_state_dict(state)
    assert list(again) == []


def test_what_a_failed_step_had_is_handed_out_again() -> None:
    numbers = shards("train", 6, shard=6, shuffle=False)
    numbers.take(2)
    numbers.step()
    assert numbers.take(2) == [2, 3]
    numbers.undo()
    assert numbers.take(3) == [2, 3, 4]


def test_a_loop_goes_back_to_where_the_last_step_was_made() -> None:
    numbers = shards("train", 4, shard=4, shuffle=False)
    seen = []
    for number in numbers:
        seen.append(number)
        if len(seen) == 2:
            numbers.undo()
        else:
            numbers.step()
    assert seen == [0, 1, 1, 2, 3]


def test_what_a_worker_leaves_goes_to_the_next_one() -> None:
    first, second = (Shards(shards("train", 6)._source, terms(size=6)) for _ in range(2))
    one = first.take(1)
    first.close()
    assert sorted(one + list(second)) == list(range(6))


# --- errors --------------------------------------------------------------------------------


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(BadInput, match="train: the dataset has no examples"):
        shards("train", 0)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="train: the dataset has no examples"):
        shards("train", TextFile(text(tmp_path / "empty", 0)))


def test_a_checkpoint_of_data_of_another_length_is_refused() -> None:
    state = shards("train", 10).state_dict()
    with pytest.raises(BadInput, match=r"the length of the data was 10 .* and is 11 now"):
        shards("train", 11).load_state_dict(state)


def test_a_checkpoint_of_a_file_with_other_content_is_refused(tmp_path: Path) -> None:
    state = shards("train", TextFile(text(tmp_path / "a", 3))).state_dict()
    (tmp_path / "b").write_text("other\nline 1\nline 2\n")
    with pytest.raises(BadInput, match="train: the data was"):
        shards("train", TextFile(tmp_path / "b")).load_state_dict(state)


def test_a_file_that_changes_under_way_is_refused(tmp_path: Path) -> None:
    path = text(tmp_path / "a", 9)
    lines = iter(shards("train", TextFile(path)))
    next(lines)
    text(path, 10)
    with pytest.raises(BadInput, match="the file changed while it was read"):
        list(lines)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nowhere cannot be read"):
        TextFile(tmp_path / "nowhere")


def test_an_encoding_whose_lines_cannot_be_found_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="encoding: utf-16 is unknown, or does not end"):
        TextFile(text(tmp_path / "a", 3), encoding="utf-16")


def test_a_state_that_comes_too_late_is_refused() -> None:
    numbers = shards("train", 10)
    numbers.take(1)
    with pytest.raises(BadInput, match="load the state first"):
        numbers.load_state_dict({})


def test_several_workers_need_somebody_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="start the workers with brain-run"):
        shards("train", 10).take(1)


# --- lines of a file -----------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 255, 256, 257, 1000])
def test_lines_are_found_wherever_they_begin(tmp_path: Path, lines: int) -> None:
    file = TextFile(text(tmp_path / "a", lines))
    assert file.size == lines
    for start in {0, lines // 2, lines - 1}:
        assert list(file.read(start, lines)) == [f"line {n}" for n in range(start, lines)]


def test_the_last_line_needs_no_end_and_empty_ones_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("ä\r\n\nlast".encode())
    file = TextFile(tmp_path / "a")
    assert list(file.read(0, file.size)) == ["ä", "", "last"]


def test_the_index_is_built_once_per_file(tmp_path: Path) -> None:
    path = text(tmp_path / "a", 300)
    TextFile(path)
    (index,) = (tmp_path / "cache" / "elastic-brain").iterdir()
    built = index.stat().st_ino
    assert (TextFile(path).size, index.stat().st_ino) == (300, built)
    text(path, 301)
    assert (TextFile(path).size, index.stat().st_ino == built) == (301, False)


def test_two_files_with_one_content_are_one(tmp_path: Path) -> None:
    files = [TextFile(text(tmp_path / name, 3)) for name in "ab"]
    assert files[0].mark == files[1].mark


def test_a_torn_index_is_built_anew(tmp_path: Path) -> None:
    path = text(tmp_path / "a", 300)
    TextFile(path)
    (index,) = (tmp_path / "cache" / "elastic-brain").iterdir()
    os.truncate(index, 70)
    assert list(TextFile(path).read(299, 300)) == ["line 299"]


# --- the ledger and who serves it ----------------------------------------------------------


def test_a_lease_that_ran_out_gives_the_shard_to_another() -> None:
    ledger, late = ShardLedger(terms(lease_seconds=5.0, size=4)).ask("slow", None, now=0.0)
    ledger, again = ledger.lapse(5.0).ask("quick", None, now=5.0)
    assert late == again == ShardSpan(0, 0, 4)
    with pytest.raises(Conflict, match="another worker got these examples"):
        ledger.ask("slow", late, now=6.0)


def test_what_is_done_after_its_lease_counts_if_nobody_has_it_yet() -> None:
    ledger, late = ShardLedger(terms(lease_seconds=5.0, size=4)).ask("slow", None, now=0.0)
    ledger, more = ledger.lapse(5.0).ask("slow", late, now=6.0)
    assert (ledger.over, more) == (True, None)


def test_asking_again_in_the_same_words_gives_the_same_shard() -> None:
    ledger, first = ShardLedger(terms()).ask("w", None, now=0.0)
    ledger, second = ledger.ask("w", first, now=0.0)
    assert ledger.ask("w", first, now=0.0) == (ledger, second)


class Office:
    """A coordinator's books, asked by workers."""

    def __init__(self, *workers: str, **fields: object) -> None:
        self.serving, self.answers = Serving(), list[tuple[str, dict[str, object]]]()
        for holder in workers:
            self.open(holder, **fields)

    def open(self, holder: str, *, world: int = 1, state: object = None, **fields: object) -> None:
        """One worker begins."""
        about = {"name": "train", "size": 4, "shard": 2, "shuffle": False} | fields
        self.ask(holder, "open", terms=about, state=state, world=world, label=f"rank {holder}")

    def ask(self, holder: str, do: str, now: float = 0.0, **body: object) -> None:
        """One worker asks."""
        question = ShardQuestion(
            replica=int(holder), holder=holder, number=1, body={"do": do, "name": "train", **body}
        )
        self.take(self.serving.asked(question, now))

    def take(self, answers: object) -> None:
        """Note what was answered."""
        for answer in answers:  # type: ignore[attr-defined]
            self.answers.append((answer.question.holder, dict(answer.body)))

    def said(self) -> list[tuple[str, dict[str, object]]]:
        """What was answered since the last look, opening apart."""
        said, self.answers = [each for each in self.answers if "ok" not in each[1]], []
        return said


def test_who_waits_gets_what_another_leaves() -> None:
    office = Office("0", "1", size=2)
    office.ask("0", "ask", done=None, wait=True)
    office.ask("1", "ask", done=None, wait=True)
    assert office.said() == [("0", {"span": [0, 0, 2]})]
    office.take(office.serving.left(0, 0.0))
    assert office.said() == [("1", {"span": [0, 0, 2]})]


def test_who_waits_is_told_of_the_end() -> None:
    office = Office("0", "1", size=2)
    office.ask("0", "ask", done=None, wait=True)
    office.ask("1", "ask", done=None, wait=True)
    office.ask("0", "ask", done=[0, 0, 2], wait=True)
    assert office.said()[1:] == [("0", {"over": True}), ("1", {"over": True})]


def test_the_state_is_that_of_the_step_at_which_all_ask_for_it() -> None:
    office = Office("0", "1")
    for holder in "01":
        office.ask(holder, "ask", done=None, wait=True)
    office.ask("0", "cut", at=1, seconds=9.0)
    assert len(office.said()) == 2
    office.ask("1", "cut", at=4, seconds=9.0)
    (_, one), (_, other) = office.said()
    assert one == other
    assert one["state"]["back"] == [[0, 1, 2]]  # type: ignore[index]


def test_a_rank_that_does_not_ask_for_the_state_is_named() -> None:
    office = Office("0", "1")
    office.ask("0", "cut", at=None, seconds=9.0)
    office.take(office.serving.turn(8.9))
    assert office.said() == []
    office.take(office.serving.turn(9.0))
    ((_, body),) = office.said()
    assert "rank 1 did not call it within 9 s; call it on every rank" in str(body["text"])


def test_who_has_nothing_more_gets_the_state_of_the_others() -> None:
    office = Office("0", "1", size=2)
    office.ask("0", "ask", done=None, wait=False)
    office.ask("0", "ask", done=[0, 0, 2], wait=False)
    office.ask("1", "cut", at=None, seconds=9.0)
    office.ask("0", "cut", at=None, seconds=9.0)
    states = [body["state"] for _, body in office.said() if "state" in body]
    assert len(states) == 2
    assert states[0] == states[1]


def test_a_world_after_the_last_one_begins_where_its_checkpoint_is() -> None:
    office = Office("0")
    office.ask("0", "ask", done=None, wait=True)
    office.ask("0", "cut", at=0, seconds=9.0)
    ((_, first), (_, cut)) = office.said()
    office.ask("0", "ask", done=first["span"], wait=True)
    office.take(office.serving.left(0, 0.0))
    office.said()
    office.open("1", world=2, state=cut["state"])
    office.ask("1", "ask", done=None, wait=True)
    assert office.said() == [("1", first)]


def test_who_joins_others_goes_on_with_them() -> None:
    office = Office("0")
    office.ask("0", "ask", done=None, wait=True)
    office.open("1", world=2)
    office.ask("1", "ask", done=None, wait=True)
    assert office.said() == [("0", {"span": [0, 0, 2]}), ("1", {"span": [0, 2, 4]})]


def finished(office: Office, name: str, *workers: str) -> None:
    """Workers open a dataset of one shard, and train it to its end."""
    for holder in workers:
        office.open(holder, name=name, size=2)
    office.ask(workers[0], "ask", name=name, done=None, wait=False)
    office.ask(workers[0], "ask", name=name, done=[0, 0, 2], wait=False)
    for holder in workers[1:]:
        office.ask(holder, "ask", name=name, done=None, wait=False)
    assert [each for each in office.said() if each[1] == {"over": True}] == [
        (holder, {"over": True}) for holder in workers
    ]


def test_the_books_do_not_grow_with_each_finished_dataset() -> None:
    office, sizes = Office(), []
    workers = [str(number) for number in range(100)]
    for number in range(400):
        finished(office, f"test-{number}", *(workers if number in (0, 399) else workers[:2]))
        sizes.append(len(json.dumps(office.serving.dump())))
    assert max(sizes[300:]) < 1.1 * sizes[300] < 200_000


def test_who_comes_to_a_finished_dataset_gets_no_example_while_one_is_there_that_trained_it() -> (
    None
):
    office = Office()
    finished(office, "test", "0", "1")
    for holder, world in (("2", 1), ("3", 2)):
        office.open(holder, name="test", size=2, world=world)
        for _ in range(2):  # lockstep asks until no rank gets any
            office.ask(holder, "ask", name="test", done=None, wait=False)
        assert office.said() == [(holder, {"over": True})] * 2
    for replica in range(4):
        office.take(office.serving.left(replica, 0.0))
    office.open("4", name="test", size=2, world=3)
    office.ask("4", "ask", name="test", done=None, wait=False)
    assert office.said() == [("4", {"span": [0, 0, 2]})]


def test_the_state_of_a_finished_dataset_is_there_without_waiting_for_anybody() -> None:
    office = Office()
    finished(office, "test", "0", "1")
    office.ask("0", "cut", name="test", at=None, seconds=9.0)
    ((_, body),) = office.said()
    assert body["state"] == ShardLedger(terms(name="test", size=2, shard=2), epoch=1).state() | {
        "terms": body["state"]["terms"]  # type: ignore[index]
    }


def test_other_data_than_the_others_have_is_refused() -> None:
    office = Office("0")
    office.open("1", size=5)
    ((_, body),) = office.said()
    assert body["error"] == "BadInput"
    assert "the length of the data was 4 in another worker and is 5 now" in str(body["text"])


def test_an_unknown_dataset_is_an_error_that_names_those_there_are() -> None:
    office = Office("0")
    question = ShardQuestion(
        replica=0, holder="0", number=2, body={"do": "ask", "name": "test", "done": None}
    )
    (answer,) = office.serving.asked(question, 0.0)
    assert answer.body["text"] == "name: there is no dataset test (open: train); open it first"


@pytest.mark.parametrize("odd", [{}, {"done": "x", "wait": True}])
def test_a_question_of_another_shape_is_the_askers_own_error(odd: dict[str, object]) -> None:
    office = Office("0", "1")
    office.said()
    office.ask("0", "ask", **odd)
    office.ask("1", "ask", done=None, wait=False)
    (_, wrong), (_, right) = office.said()
    assert (wrong["error"], right["span"]) == ("BadInput", [0, 0, 2])


def test_alone_it_is_the_same_ledger() -> None:
    with pytest.raises(BadInput, match=r"there is no dataset train \(open: none\)"):
        Alone().ask(do="ask", name="train", done=None, wait=False)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffone\r\ntwo".encode())
    assert list(TextFile(tmp_path / "a", encoding="utf-8-sig").read(0, 2)) == ["one", "two"]


def test_an_encoding_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    with pytest.raises(BadInput, match="encoding: utf-9"):
        TextFile(tmp_path / "a", encoding="utf-9")


@pytest.mark.parametrize("books", ["{", "[]", '{"train": {"ledger": {}}}'])
def test_a_coordinator_begins_without_books_that_are_damaged(tmp_path: Path, books: str) -> None:
    said: list[str] = []
    (tmp_path / "shards.json").write_text(json.dumps({"v": 1, "version": 3, "books": books}))
    server = ShardServer(JobPlace(tmp_path), cast(Peers, None), said.append, lambda: 0.0)
    server.begin()
    server.settle()
    assert server.settled
    assert [line.partition(", ")[0] for line in said] == [
        "the ledgers of shards in shards.json are damaged"
    ]
