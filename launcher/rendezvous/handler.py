"""torch's ``RendezvousHandler`` for Brain's worlds. It runs in torchrun's process, which has
imported torch; no other module of the launcher imports torch.
"""

import logging
import os
import socket
import sys
import time
from datetime import timedelta
from typing import Any

try:
    from torch.distributed import PrefixStore, TCPStore
    from torch.distributed.elastic.rendezvous import (
        RendezvousClosedError,
        RendezvousConnectionError,
        RendezvousGracefulExitError,
        RendezvousHandler,
        RendezvousInfo,
        RendezvousParameters,
        RendezvousStateError,
        RendezvousStoreInfo,
        RendezvousTimeoutError,
    )
except ImportError as old:
    raise ImportError(
        "--rdzv-backend=brain needs torch 2.4 or newer, but the installed torch is older; upgrade "
        "torch, or use brain-run, which imports no torch"
    ) from old

from brain.errors import BadInput
from brain.types.world import ReplicaExit
from launcher.rendezvous.guest import SIGNALS, Closed, Guest, RendezvousTurn
from launcher.rendezvous.settings import RendezvousSettings, settings
from launcher.workers.processes.process import free_port

_log = logging.getLogger(__name__)
#: Seconds between two checks if a world was given up while this agent enters it.
_LOOK_SECONDS = 1.0
#: Seconds between attempts to connect to a store that rank 0 is creating.
_KNOCK_SECONDS = 0.005


def create(parameters: RendezvousParameters) -> "BrainRendezvous":
    """Create the handler for torchrun.

    Raises:
        ValueError: a parameter cannot be used; the message names it, its value and the remedy.
    """
    try:
        asked = settings(
            endpoint=parameters.endpoint or "",
            run_id=parameters.run_id,
            min_nodes=parameters.min_nodes,
            max_nodes=parameters.max_nodes,
            local_addr=parameters.local_addr,
            conf=parameters.config,
            environment=os.environ,
        )
    except BadInput as bad:
        raise ValueError(str(bad)) from bad
    return BrainRendezvous(asked)


class BrainRendezvous(RendezvousHandler):  # type: ignore[misc]  # torch has no types here
    """The rendezvous of one torchrun agent, which enters the worlds of its job."""

    def __init__(self, asked: RendezvousSettings) -> None:
        self._asked = asked
        self._guest = Guest(asked, _say)
        said = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
        self._guest.heed([name for name in said.split(",") if name] or SIGNALS)
        self._store: Any = None

    def get_backend(self) -> str:
        return "brain"

    def get_run_id(self) -> str:
        """Return the job's id."""
        return self._asked.config.run_id

    @property
    def use_agent_store(self) -> bool:
        """True if workers use the agents' store; every world has a new store."""
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next world, enter it and return this agent's place in it; the previous world
        is over.
        """
        self._store = None
        while True:
            turn = self._next()
            try:
                return self._enter(turn)
            except _Gone as why:
                _log.info("the rendezvous of world %s failed: %s", turn.world.epoch, why)
                self._guest.failed(str(why))

    def num_nodes_waiting(self) -> int:
        """Return 1 if torchrun must restart its workers, else 0.

        The call is cheap. It sends no request, because the coordinator sends each new world to this
        agent without being asked.
        """
        return int(self._guest.waiting)

    def is_closed(self) -> bool:
        """True if the job is over."""
        return self._guest.closed

    def set_closed(self) -> None:
        """End the job for all agents."""
        self._guest.close("an agent closed the rendezvous")

    def shutdown(self) -> bool:
        """Report that the workers succeeded, or end the job; return False if other agents continue.

        torchrun calls this method after its workers succeeded, or when it gives up. Only if
        torchrun gives up does this method end the job.
        """
        failed = sys.exc_info()[1]
        if failed is not None:
            self._guest.close(f"an agent left the rendezvous: {failed!r}"[:500])
        return self._guest.finish(self._asked.close_seconds)

    def _next(self) -> RendezvousTurn:
        config = self._asked.config
        try:
            return self._guest.next(self._asked.join_seconds)
        except TimeoutError as late:
            raise RendezvousTimeoutError(
                f"no world formed within {self._asked.join_seconds:g} s, because fewer than "
                f"{config.nodes_min} nodes (in multiples of {config.unit}) joined; start more "
                "agents, or wait longer with --rdzv-conf join_timeout=SECONDS"
            ) from late
        except RuntimeError as broken:
            raise RendezvousStateError(str(broken)) from broken
        except Closed as over:
            match over.ended.exit:
                case ReplicaExit.LEFT:
                    raise RendezvousGracefulExitError(str(over)) from over
                case ReplicaExit.FAILED if not self._guest.met:
                    raise RendezvousConnectionError(str(over)) from over
            raise RendezvousClosedError(f"the job has ended: {over}") from over

    # --- entering a world ------------------------------------------------------------------

    def _enter(self, turn: RendezvousTurn) -> RendezvousInfo:
        """Wait for the other agents at the world's store; return the store, rank and size."""
        world, rank, size = turn.world, turn.group_rank, len(turn.world.members)
        self._store = store = self._meet(turn)
        ours = PrefixStore("brain", store)
        port = world.master_port
        if not self.use_agent_store and rank == 0:
            ours.set("port", str(free_port("0.0.0.0")))
        if ours.add("here", 1) == size:
            ours.set("all", "1")
        self._wait(turn, ours, "all")
        if not self.use_agent_store:
            port = int(ours.get("port"))
        store.set_timeout(timedelta(seconds=self._asked.read_seconds))
        info = RendezvousStoreInfo(world.master_addr, port)
        return RendezvousInfo(store, rank, size, info)

    def _meet(self, turn: RendezvousTurn) -> Any:
        """Return the world's store, which rank 0 serves."""
        world, first = turn.world, turn.group_rank == 0
        where = f"{world.master_addr}:{world.master_port}"
        until = time.monotonic() + self._asked.read_seconds
        # torch looks again half a second after it found nobody, and prints where it looked.
        while not first and not _answers(world.master_addr, world.master_port):
            if turn.over or time.monotonic() > until:
                raise _Gone(f"no store at {where}")
            time.sleep(_KNOCK_SECONDS)
        try:
            return TCPStore(
                world.master_addr,
                world.master_port,
                is_master=first,
                wait_for_workers=False,
                timeout=timedelta(seconds=self._asked.read_seconds),
            )
        except RuntimeError as cannot:  # torch's errors of stores and networks
            raise _Gone(f"no store at {where}: {cannot}") from cannot

    def _wait(self, turn: RendezvousTurn, store: Any, key: str) -> None:
        until = time.monotonic() + self._asked.read_seconds
        while True:
            try:
                store.wait([key], timedelta(seconds=_LOOK_SECONDS))
            except RuntimeError as late:  # torch's time-outs and broken connections
                if turn.over or time.monotonic() > until:
                    raise _Gone(f"not all agents arrived: {late}") from late
            else:
                return


class _Gone(Exception):
    """A world ended before torchrun entered it."""


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_LOOK_SECONDS).close()
    except OSError:
        return False
    return True


def _say(text: str) -> None:
    """Log a text; print it only with ``BRAIN_DEBUG``, because the console belongs to the script."""
    _log.info(text)
    if os.environ.get("BRAIN_DEBUG"):
        sys.stderr.write(f"brain: {time.strftime('%H:%M:%S')} {text}\n")
