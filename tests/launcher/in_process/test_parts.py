"""The pieces under a session: who answered, the board, the lines, the state that travels."""

import asyncio
import json
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from brain.errors import BadInput
from brain.types.world import Cause
from launcher import elastic
from launcher.coordinator.world.preparation import Preparation
from launcher.data import Sampler
from launcher.elastic import carrying
from launcher.elastic.carrying import CarriedState
from launcher.elastic.store import Over, RendezvousStore
from launcher.values.action import FormWorld
from launcher.workers.processes.sessions import Sessions
from tests.launcher.building import a_world, soon


def preparation() -> Preparation:
    """Replicas 10 to 12, where 9 leaves and names the step."""
    document = a_world(1, 1, 1)
    form = FormWorld(document.members, Cause.MEMBERSHIP, 0, 3)
    return Preparation(form, document, since=0.0, involved=[9, 10], first=9)


def test_a_change_is_ready_once_all_have_built_and_agreed_who_leaves_included() -> None:
    made = preparation()
    for replica in (9, 10, 11, 12):
        made.answered(replica)
    made.ask(40)
    answers = [made.agreed(replica, 40, True) for replica in (9, 10, 11, 12)]
    assert (made.ready, any(answers)) == (True, False)


def test_one_that_is_past_the_step_has_another_one_named_and_old_answers_do_not_count() -> None:
    made = preparation()
    for replica in (9, 10, 11, 12):
        made.answered(replica)
    made.ask(40)
    answers = [made.agreed(replica, 40, replica != 11) for replica in (9, 10, 11, 12)]
    assert answers == [False, False, False, True]
    made.ask(42)
    assert [made.agreed(replica, 40, True) for replica in (9, 10, 11, 12)] == [False] * 4
    assert not made.ready


def test_what_one_sets_on_a_board_all_can_wait_for() -> None:
    other = RendezvousStore(lambda key, value: None, 30.0)
    own = RendezvousStore(other.posted, 30.0)
    own.set("a", "1")
    assert (own.get("a"), other.get("a")) == (b"1", b"1")


def test_who_waits_at_a_board_is_let_go_when_its_world_does_not_come() -> None:
    store, found = (
        RendezvousStore(lambda key, value: None, 60.0),
        queue.SimpleQueue[BaseException](),
    )

    def wait() -> None:
        try:
            store.get("never")
        except Over as over:
            found.put(over)

    waiting = threading.Thread(target=wait)
    waiting.start()
    store.cancel()
    assert isinstance(found.get(timeout=30), Over)
    waiting.join(30)


@dataclass
class Pipe:
    """A group of two in one process."""

    device: str = "cpu"
    sent: "queue.Queue[torch.Tensor]" = field(default_factory=queue.Queue)

    def send(self, tensor: torch.Tensor, rank: int) -> None:
        self.sent.put(tensor.clone())

    def receive(self, tensor: torch.Tensor, rank: int) -> None:
        tensor.copy_(self.sent.get(timeout=30))


def held(seed: int, kind: Callable[..., torch.optim.Optimizer]) -> CarriedState:
    """A network with buffers that has made two steps, and a scheduler."""
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = kind(module.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2 if seed else 0):
        module(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return CarriedState(module=module, optimizers=[optimizer], others={"schedule": schedule})


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_newcomer_has_all_that_the_giver_had_to_the_bit(
    kind: Callable[..., torch.optim.Optimizer],
) -> None:
    ours, theirs, pipe = held(1, kind), held(0, kind), Pipe()
    with torch.no_grad():
        carrying.give(pipe, 1, ours, {"steps": 2})  # type: ignore[arg-type]
        loop = carrying.take(pipe, 0, theirs)  # type: ignore[arg-type]
    assert loop == {"steps": 2}
    for mine, other in (
        (ours.module.state_dict(), theirs.module.state_dict()),
        (ours.optimizers[0].state_dict(), theirs.optimizers[0].state_dict()),
        (ours.others["schedule"].state_dict(), theirs.others["schedule"].state_dict()),
    ):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_without_a_complete_state_anywhere_nobody_goes_on() -> None:
    with pytest.raises(RuntimeError, match="no member"):
        carrying.givers([carrying.NOTHING] * 2)


def test_words_of_workers_count_once_all_have_said_them(tmp_path: Path) -> None:
    async def run() -> list[tuple[str, Any]]:
        heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        sessions = Sessions(tmp_path / "elastic", 2, lambda *said: heard.put_nowait(said))
        lines = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for local_rank, line in enumerate(lines):
            line.connect(str(tmp_path / "elastic"))
            line.send(json.dumps({"say": "hello", "local_rank": local_rank}).encode())
        found = [await soon(heard.get()) for _ in lines]
        for ok, line in zip((True, False), lines, strict=True):
            line.send(json.dumps({"say": "agreed", "epoch": 5, "step": 7, "ok": ok}).encode())
        found.append(await soon(heard.get()))
        sessions.tell("commit", epoch=5)
        assert [json.loads(line.recv(1000))["do"] for line in lines] == ["commit"] * 2
        sessions.close()
        for line in lines:
            line.close()
        return found[2:]

    assert asyncio.run(run()) == [("agreed", {"epoch": 5, "step": 7, "ok": False})]


def linear(**fields: Any) -> tuple[elastic.Session, torch.optim.Optimizer]:
    """A session of this process alone."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return elastic.join(model, optimizer, **fields), optimizer


def test_without_a_launcher_a_session_only_counts() -> None:
    session, optimizer = linear(steps=5)
    for batch in session.batches([torch.ones(1, 2)] * 3):
        with session.step():
            session.model(batch).sum().backward()
            optimizer.step()
    assert (session.steps, session.rank, session.size, session.world) == (8, 0, 1, 0)
    assert not session.elastic


def test_what_a_script_raises_is_its_own() -> None:
    session, _ = linear()
    with pytest.raises(RuntimeError, match="shapes"), session.step():
        session.model(torch.ones(1, 3))
    assert session.steps == 0


def test_with_a_sampler_micro_batches_make_one_step() -> None:
    sampler = Sampler(8, global_batch=4, most_per_replica=2, shuffle=False)
    session, optimizer = linear(sampler=sampler)
    data = [torch.ones(2) * each for each in range(8)]
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)  # type: ignore[arg-type]
    lasts = []
    for _ in session.epochs(1):
        for batch in session.batches(loader):
            with session.step() as part:
                (session.model(batch).mean() * part.weight).backward()
                lasts.append(part.last)
                if part.last:
                    optimizer.step()
                    optimizer.zero_grad()
    assert (session.steps, lasts, session.epoch) == (2, [False, True, False, True], 1)


class FullyShardedDataParallel(torch.nn.Module):
    """By its name alone a network that no process has all of."""


@pytest.mark.parametrize(
    ("model", "word"), [(FullyShardedDataParallel(), "restart"), (torch.nn.Linear(1, 1), "")]
)
def test_a_sharded_network_is_refused_with_the_way_that_it_can_go(
    model: torch.nn.Module, word: str
) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    if not word:
        assert elastic.join(model, optimizer).model is model
        return
    with pytest.raises(BadInput, match=word):
        elastic.join(model, optimizer)


def test_a_form_is_compared_whole() -> None:
    made = preparation()
    assert not made.fits(replace(made.form, goal=9))
