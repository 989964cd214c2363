"""What a session does between two steps, and after one that failed, with its agent played."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch

from brain.errors import BadInput
from launcher import elastic
from launcher.data import Sampler
from launcher.elastic.changing import Due, Plan
from launcher.elastic.groups import Exchanges, RetiredGroups, SessionGroup, build
from launcher.elastic.session import Session
from launcher.elastic.store import RendezvousStore


def networks(seed: int, count: int = 1) -> tuple[Session, list[torch.optim.Optimizer]]:
    """A session of so many networks, each with its optimizer."""
    torch.manual_seed(seed)
    model = torch.nn.ModuleList(torch.nn.Linear(2, 1) for _ in range(count))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in model]
    return elastic.join(model, cast(Any, optimizers)), cast(Any, optimizers)


@dataclass
class Leaver:
    """The way to an agent that lets this process go as soon as it is asked."""

    watched: bool = False

    def due(self) -> Due:
        return Due.PART

    def part(self) -> None:
        pass


@dataclass
class Mourner:
    """The way to an agent whose world has lost a member, and who finds the next one."""

    bereft: bool = True
    ended: bool = False
    watched: bool = False
    told: int = 0

    def broken(self, why: str) -> None:
        self.told += 1

    def relieved(self) -> Due:
        self.bereft = False
        return Due.GO_ON


def mourning() -> tuple[Session, Mourner, torch.optim.Optimizer]:
    """A session that has made one step, and has lost a peer since."""
    session, (optimizer,) = networks(0)
    optimizer.register_step_post_hook(session._made)
    with session.step():
        optimizer.step()
    session._member = agent = cast(Any, Mourner())
    return session, agent, optimizer


def test_a_script_that_swallows_the_loss_of_a_peer_has_made_no_step() -> None:
    session, agent, optimizer = mourning()
    for _ in range(2):
        with session.step(), suppress(RuntimeError):
            if agent.bereft:
                raise RuntimeError("Connection closed by peer")
            optimizer.step()
    assert (session.steps, agent.told) == (2, 1)


def test_a_repeated_step_unscales_its_gradients_again() -> None:
    weight = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    session = elastic.join(weight, optimizer, state={"scaler": scaler})
    session._member = agent = cast(Any, Mourner())
    gradients = []
    for _ in range(2):
        with session.step():
            scaler.scale(session.model(torch.ones(1, 1)).sum()).backward()
            scaler.unscale_(optimizer)
            gradients += [weight.weight.grad.item()]
            if agent.bereft:
                raise RuntimeError("Connection closed by peer")
            scaler.step(optimizer)
            scaler.update()
    assert (gradients, scaler.get_scale()) == ([1.0, 1.0], 1024.0)


def test_a_scaler_that_scaled_no_loss_yet_survives_the_loss_of_a_peer() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    session = elastic.join(model, optimizer, state={"scaler": scaler})
    session._member = agent = cast(Any, Mourner())
    with session.step():
        raise RuntimeError("Connection closed by peer")
    assert (agent.told, scaler.get_scale()) == (1, 1024.0)


def test_a_step_that_was_made_before_a_peer_was_lost_counts() -> None:
    session, agent, optimizer = mourning()
    with session.step():
        optimizer.step()
    assert (session.steps, agent.told) == (2, 0)


def test_what_stands_behind_the_block_is_done_before_the_world_changes() -> None:
    session, _ = networks(0)
    agent = Leaver()
    session._member = cast(Any, agent)
    behind = []

    def train() -> None:
        for _ in range(3):
            with session.step():
                agent.watched = session.steps == 1
            behind.append(session.steps)

    with pytest.raises(SystemExit):
        train()
    assert behind == [1, 2]


def test_the_world_does_not_change_between_micro_batches_nor_before_an_epoch_is_closed() -> None:
    sampler = Sampler(4, global_batch=4, most_per_replica=2, shuffle=False)
    model = torch.nn.Linear(2, 1)
    session = elastic.join(model, torch.optim.SGD(model.parameters(), lr=0.1), sampler=sampler)
    agent = Leaver(watched=True)
    closed, lasts = [], []

    def train() -> None:
        for epoch in session.epochs(2):
            for _ in session.batches(cast(Any, sampler)):
                session._member = cast(Any, agent)
                with session.step() as part:
                    lasts.append(part.last)
            closed.append(epoch)

    with pytest.raises(SystemExit):
        train()
    assert (lasts, closed) == ([False, True], [0])


def test_a_state_that_nobody_could_give_is_refused_as_the_script_begins() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BadInput, match="best is a float"):
        elastic.join(model, optimizer, state={"best": 0.5})


def meet(size: int) -> list[SessionGroup]:
    """Groups of all ranks of one world, in one process."""
    boards: list[RendezvousStore] = []

    def post_from(rank: int) -> Callable[[str, bytes], None]:
        def post(key: str, value: bytes) -> None:
            for each in boards[:rank] + boards[rank + 1 :]:
                each.posted(key, value)

        return post

    boards += [RendezvousStore(post_from(rank), 60.0) for rank in range(size)]

    def meets(rank: int) -> SessionGroup:
        host = "127.0.0.1"
        group = build(boards[rank], rank, size, host=host, device=torch.device("cpu"))
        RetiredGroups.hold(group)
        return group

    return together([lambda rank=rank: meets(rank) for rank in range(size)])  # type: ignore[misc]


def together(acts: list[Callable[[], Any]]) -> list[Any]:
    """What each returns; all act at once, as ranks do."""
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n, act=act: found.update({n: act()}))  # type: ignore[misc]
        for n, act in enumerate(acts)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    return [found[number] for number in range(len(acts))]


def values(session: Session) -> list[float]:
    """All parameters."""
    return [float(x) for each in session.module.parameters() for x in each.detach().flatten()]


@pytest.mark.parametrize("made", [1, 2])
def test_ranks_of_which_one_optimizer_has_stepped_and_others_not_are_one_again(made: int) -> None:
    ranks = [networks(0, 2) for _ in range(2)]
    groups = meet(2)
    (ahead, optimizers), (behind, _) = ranks
    for optimizer, network in list(zip(optimizers, ahead.module.children(), strict=True))[:made]:
        network(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    ahead._applied, ahead._fresh, behind._fresh = made, False, False
    enters = [
        lambda rank=rank: ranks[rank][0]._enter(  # type: ignore[misc]
            Plan(epoch=2, rank=rank, size=2, now=True), groups[rank]
        )
        for rank in range(2)
    ]
    together(enters)
    assert values(ahead) == values(behind)
    assert ahead.steps == behind.steps == (1 if made == 2 else 0)  # else both make it again


class Stuck:
    """A gloo group that never ends an exchange, as one does that had half sent something."""

    def allreduce(self, tensors: Any, opts: Any) -> Any:
        return self

    def get_future(self) -> Any:
        return torch.futures.Future()


def test_a_group_that_is_ended_lets_go_of_who_waits_although_gloo_does_not() -> None:
    group = Exchanges(0, 2, Stuck())
    work = group.allreduce([torch.ones(1)], None)
    group.end()
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        work.wait()
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        group.allreduce([torch.ones(1)], None)


class Lost(Stuck):
    """A gloo group whose peers are gone."""

    def get_future(self) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_exception(RuntimeError("Connection closed by peer"))
        return future


def test_a_group_remembers_that_an_exchange_failed_whoever_heard_of_it() -> None:
    group = Exchanges(0, 2, Lost())
    before = group.failed
    group.allreduce([torch.ones(1)], None)
    assert (before, group.failed) == (False, True)


def test_members_wait_for_each_other_for_longer_than_connections_may_take() -> None:
    one, other = meet(2)
    into, gathered = torch.zeros(1), []

    def waits() -> None:
        gathered.append(one.gather([1]))
        one.receive(into, 1)

    def takes_its_time() -> None:
        for act in (lambda: other.gather([2]), lambda: other.send(torch.ones(1), 0)):
            time.sleep(0.5)
            act()

    together([waits, takes_its_time])
    assert (gathered, into.item()) == ([[[1], [2]]], 1.0)
