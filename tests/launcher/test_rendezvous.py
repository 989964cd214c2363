"""torch's interface to our worlds, several agents of torchrun played by one process."""

import gc
import inspect
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousGracefulExitError,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from brain.errors import BadInput
from launcher.rendezvous.guest import RendezvousTurn
from launcher.rendezvous.handler import BrainRendezvous
from launcher.rendezvous.settings import DEFAULT_PORT, RendezvousSettings, settings
from launcher.workers.processes.process import free_port
from launcher.workers.workers import Workers

#: Several agents end inside one process here: what the end of a process closes is not closed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SECONDS = 30.0


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What is not closed here is collected here, and not in the test of somebody else."""
    yield
    gc.collect()


class Agents:
    """Handlers of one job, each asked from a thread of its own as torchrun would ask."""

    def __init__(self, pool: ThreadPoolExecutor, nodes: tuple[int, int]) -> None:
        self._pool, self._nodes = pool, nodes
        self._endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
        self.all: list[BrainRendezvous] = []

    def add(self, **conf: str) -> BrainRendezvous:
        """One more agent; it does not ask for a world yet."""
        least, most = self._nodes
        parameters = RendezvousParameters(
            "brain", self._endpoint, "run", least, most, "127.0.0.1", **conf
        )
        # In a thread, where no signals of the test's process are heeded.
        handler = self._pool.submit(get_rendezvous_handler, parameters).result()
        assert isinstance(handler, BrainRendezvous)
        self.all.append(handler)
        return handler

    def asks(self, handler: BrainRendezvous) -> "Future[RendezvousInfo]":
        """It ends its workers, if there are any, and waits for the next world."""
        return self._pool.submit(handler.next_rendezvous)

    def meet(self, *handlers: BrainRendezvous) -> list[RendezvousInfo]:
        """The world that has all of them, whatever smaller ones came before."""
        asked = [self.asks(handler) for handler in handlers]
        until = time.monotonic() + SECONDS
        while True:
            found = [each.result(SECONDS) for each in asked]
            if all(info.world_size == len(handlers) for info in found):
                return found
            assert time.monotonic() < until, [info.world_size for info in found]
            for at, handler in enumerate(handlers):
                if found[at].world_size != len(handlers):
                    changed(handler)
                    asked[at] = self.asks(handler)


def changed(handler: BrainRendezvous, seconds: float = SECONDS) -> None:
    """Wait until torchrun would see that its workers are to be restarted."""
    until = time.monotonic() + seconds
    while handler.num_nodes_waiting() == 0:
        assert time.monotonic() < until, "nobody said that the world changes"
        time.sleep(0.01)


def lost(handler: BrainRendezvous) -> None:
    """Its process ends: nothing is closed but its connections."""
    handler._guest._depart()


def gone(handler: BrainRendezvous) -> None:
    """It is lost, and its thread has ended, too, however long that takes."""
    lost(handler)
    if handler._guest._thread is not None:
        handler._guest._thread.join(SECONDS)


@contextmanager
def job(least: int = 1, most: int = 3) -> Iterator[Agents]:
    """Agents of one job; afterwards none is left."""
    with ThreadPoolExecutor(16) as pool, ExitStack() as stack:
        agents = Agents(pool, (least, most))
        stack.callback(lambda: [gone(each) for each in agents.all])
        yield agents


def read(
    conf: Mapping[str, Any], endpoint: str = "node0:29400", most: int = 4
) -> RendezvousSettings:
    """Settings of a job of up to ``most`` nodes."""
    return settings(
        endpoint=endpoint,
        run_id="run",
        min_nodes=1,
        max_nodes=most,
        local_addr=None,
        conf=conf,
        environment={"BRAIN_TOPOLOGY": "z/s"},
    )


# --- parameters --------------------------------------------------------------------------------


def test_an_endpoint_without_a_port_has_that_of_c10d() -> None:
    assert read({}, "node0").config.rdzv_endpoint == f"node0:{DEFAULT_PORT}"


def test_unit_topology_and_rank_come_with_rdzv_conf() -> None:
    asked = read({"unit": "2", "topology": "z1/sw2", "rank": "1"})

    assert (asked.config.unit, asked.config.topology, asked.rank) == (2, ("z1", "sw2"), 1)


def test_the_topology_may_come_with_the_environment() -> None:
    assert read({}).config.topology == ("z", "s")


@pytest.mark.parametrize(
    ("conf", "endpoint", "says"),
    [
        ({"unti": "2"}, "n:1", "unti=2 is not known; did you mean unit?"),
        ({"colour": "red"}, "n:1", "known are unit, topology"),
        ({"unit": "two"}, "n:1", "unit=two is not a whole number of at least 1"),
        ({"unit": "8"}, "n:1", "unit=8 is more than --nnodes=1:4 allows"),
        ({"topology": "a//b"}, "n:1", "topology=a//b must be up to 4 names"),
        ({"join_timeout": "soon"}, "n:1", "join_timeout=soon is not a number of seconds"),
        ({}, "", "--rdzv-endpoint= is not HOST:PORT"),
        ({}, "n:many", "--rdzv-endpoint=n:many is not HOST:PORT"),
    ],
)
def test_what_cannot_be_used_is_said_with_field_value_and_remedy(
    conf: dict[str, str], endpoint: str, says: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        read(conf, endpoint)


def test_settings_of_c10d_that_mean_nothing_here_are_taken() -> None:
    assert read({"last_call_timeout": "1", "is_host": "1"}).config.rdzv_conf == {}


def test_only_the_handler_imports_torch() -> None:
    lines = "import sys, launcher.rendezvous.guest as g; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0


def test_who_only_loads_the_entry_point_pays_nothing() -> None:
    lines = (
        "import sys, _elastic_brain; _elastic_brain.handlers(); "
        "sys.exit(bool({'asyncio', 'msgspec', 'launcher', 'torch'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0


@pytest.mark.parametrize("asked", ["stop", "progress", "park", "ask_to_save", "extend_lease"])
def test_a_turn_is_asked_as_workers_are(asked: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, asked)) for kind in (RendezvousTurn, Workers))

    assert list(ours.parameters) == list(theirs.parameters)


# --- worlds ------------------------------------------------------------------------------------


def test_agents_meet_at_a_store_of_their_world_alone() -> None:
    with job() as agents:
        first, second = agents.meet(agents.add(), agents.add())
        first.store.set("said", "hello")

        assert {first.rank, second.rank} == {0, 1}
        assert second.store.get("said") == b"hello"


def test_a_first_world_waits_for_no_last_call() -> None:
    with job(1, 3) as agents:
        assert agents.asks(agents.add()).result(SECONDS).world_size == 1


def test_a_joiner_is_pushed_to_who_runs_and_both_enter_a_world_with_a_new_store() -> None:
    with job() as agents:
        one, two = agents.add(), agents.add()
        alone = agents.asks(one).result(SECONDS)
        quiet = one.num_nodes_waiting()
        joining = agents.asks(two)
        changed(one)
        grown = agents.asks(one).result(SECONDS)

        assert (quiet, grown.world_size, joining.result(SECONDS).world_size) == (0, 2, 2)
        before, after = alone.bootstrap_store_info, grown.bootstrap_store_info
        assert before is not None
        assert after is not None
        assert before.master_port != after.master_port


def test_workers_share_the_store_unless_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    with job() as agents:
        handlers = [agents.add(), agents.add()]
        infos = agents.meet(*handlers)
        ports = {info.bootstrap_store_info.master_port for info in infos}

        assert [handler.use_agent_store for handler in handlers] == [False, False]
        assert len(ports) == 1
        assert ports != {infos[0].store.port}


def test_an_agent_whose_connection_ends_is_missed_at_once() -> None:
    with job() as agents:
        handlers = [agents.add() for _ in range(3)]
        agents.meet(*handlers)
        lost(handlers[2])
        for each in handlers[:2]:
            changed(each)

        assert [info.world_size for info in agents.meet(*handlers[:2])] == [2, 2]


def test_the_agent_that_coordinates_may_go_like_any_other() -> None:
    with job() as agents:
        handlers = [agents.add() for _ in range(3)]
        agents.meet(*handlers)
        leadership = next(
            h for h in handlers if h._guest._membership._leading.coordinator is not None
        )
        rest = [each for each in handlers if each is not leadership]
        lost(leadership)
        for each in rest:
            changed(each)

        assert [info.world_size for info in agents.meet(*rest)] == [2, 2]


def test_workers_that_failed_on_one_agent_are_restarted_on_all() -> None:
    with job() as agents:
        one, two = agents.add(), agents.add()
        agents.meet(one, two)
        again = agents.asks(one)
        changed(two)

        assert agents.asks(two).result(SECONDS).world_size == 2
        assert again.result(SECONDS).world_size == 2


def test_ranks_follow_the_topology() -> None:
    with job(4, 4) as agents:
        places = ["sw1", "sw2", "sw2", "sw2"]
        infos = agents.meet(*(agents.add(topology=f"z/{place}") for place in places))

        assert infos[0].rank == 3


def test_an_external_rank_is_given() -> None:
    with job(2, 2) as agents:
        infos = agents.meet(agents.add(rank="1"), agents.add(rank="0"))

        assert [info.rank for info in infos] == [1, 0]


def test_of_3_agents_of_unit_2_the_third_waits_as_spare_and_replaces_who_is_lost() -> None:
    with job(2, 4) as agents:
        handlers = [agents.add(unit="2") for _ in range(3)]
        asked = {each: agents.asks(each) for each in handlers}
        running: list[BrainRendezvous] = []
        until = time.monotonic() + SECONDS
        while len(running) < 2 and time.monotonic() < until:
            running = [each for each, found in asked.items() if found.done()]
        spare = next(each for each in handlers if each not in running)
        lost(running[0])
        changed(running[1])

        assert agents.asks(running[1]).result(SECONDS).world_size == 2
        assert asked[spare].result(SECONDS).world_size == 2


# --- the end -----------------------------------------------------------------------------------


def test_agents_whose_workers_all_ended_well_end_the_job_together() -> None:
    with job() as agents:
        handlers = [agents.add(), agents.add()]
        agents.meet(*handlers)
        closing = [agents._pool.submit(each.shutdown) for each in handlers]

        assert [each.result(SECONDS) for each in closing] == [True, True]
        assert all(each.is_closed() for each in handlers)


def test_an_agent_that_gives_up_ends_the_job_for_all() -> None:
    with job() as agents:
        one, two = agents.add(), agents.add()
        agents.meet(one, two)

        def give_up() -> None:
            try:
                raise RuntimeError("no restarts left")
            finally:
                one.shutdown()

        giving = agents._pool.submit(give_up)
        changed(two)
        with pytest.raises(RendezvousClosedError, match="no restarts left"):
            agents.asks(two).result(SECONDS)
        assert isinstance(giving.exception(SECONDS), RuntimeError)


def test_who_comes_too_late_for_too_few_is_told_what_is_missing() -> None:
    with job(2, 2) as agents, pytest.raises(RendezvousTimeoutError, match="fewer than 2 nodes"):
        agents.asks(agents.add(join_timeout="0.5")).result(SECONDS)


def test_a_job_that_was_closed_admits_nobody() -> None:
    with job() as agents:
        one = agents.add()
        agents.asks(one).result(SECONDS)
        one.set_closed()

        with pytest.raises(RendezvousClosedError):
            agents.asks(one).result(SECONDS)


def test_an_agent_that_was_let_go_ends_gracefully() -> None:
    with job() as agents:
        handlers = [agents.add(), agents.add()]
        agents.meet(*handlers)
        leaver = handlers[1]
        leaver._guest._call(leaver._guest._membership.leave, 15)
        changed(handlers[0])
        staying = agents.asks(handlers[0])

        with pytest.raises((RendezvousGracefulExitError, RendezvousClosedError)):
            agents.asks(leaver).result(SECONDS)
        assert staying.result(SECONDS).world_size == 1


def test_a_world_whose_lease_ran_out_is_over_although_nobody_can_say_so() -> None:
    with job() as agents:
        one = agents.add()
        agents.asks(one).result(SECONDS)
        turn = one._guest._taken
        assert turn is not None

        def lapsed() -> bool:
            turn.lease_until_ns = time.monotonic_ns() - 1  # its loop may renew it at this moment
            return one.num_nodes_waiting() == 1

        assert any(lapsed() for _ in range(100))
