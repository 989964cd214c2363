"""Process groups outside torch's registry, which can be built while training and ended immediately.

gloo opens one connection for each pair of members, to the listening port of one of the two. Members
publish these ports in the world's store, so that a process knows which of its connections belong to
a group, and ``end`` can shut them down. (``abort`` of torch 2.13 does not wake a thread that waits
in a gloo exchange.) Even then, a thread of gloo may wait forever in an all-reduce (``waitSend``).
So the script waits for futures of this module, which ``end`` completes, and gloo's thread remains.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from launcher.elastic.sockets import Address, listening, shut
from launcher.elastic.store import RendezvousStore

#: Nothing waits by time here: who waits for a peer that is gone is told so.
_FOREVER = timedelta(hours=24)
#: Seconds in which a connection is made, doubled at each attempt of all members together.
_CONNECT_SECONDS, _ATTEMPTS = 0.2, 8
#: A group's threads have let go of everything so long after its last use (launcher/inject/parting).
STILL_SECONDS = 10.0

#: Seconds that the end of the interpreter waits at most for what gloo's threads still hold of it.
_LET_GO_SECONDS = 2.0

#: Read as a group is made: errors are cleaned up after, nobody watches for a standstill but we.
_NCCL = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2", "TORCH_NCCL_ENABLE_MONITORING": "0"}

#: Error for the use of a group that was ended.
_OVER = "Connection closed by peer: this process group was ended"

_building = threading.Lock()
_groups: WeakSet[Exchanges] = WeakSet()


class _Hold:
    """An object that lives as long as the callback that a thread of gloo holds."""


class _Exchange(Work):
    """An exchange that ends with a future of this module."""

    def __init__(self, future: torch.futures.Future[Any]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta = _FOREVER) -> bool:
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


def _followed(name: str) -> Callable[..., _Exchange]:
    def exchange(group: Exchanges, *args: Any) -> _Exchange:
        return group._follow(getattr(group._backend, name)(*args))

    return exchange


def _passed(name: str) -> Callable[..., Any]:
    def exchange(group: Exchanges, *args: Any) -> Any:
        return getattr(group._backend, name)(*args)

    return exchange


class Exchanges(dist.ProcessGroup):  # type: ignore[misc]
    """A gloo group whose exchanges can be ended even while gloo's threads wait.

    A thread of gloo releases an exchange while it holds the lock of gloo's queue. If Python refers
    to tensors of the exchange, the thread then waits for the interpreter's lock. So no thread may
    wait for the queue while it has the interpreter's lock. Torch does so in a method that a group
    written in Python does not define (``WORK_OVERRIDE``); so this class defines all of gloo's
    methods. An exchange is kept until gloo's thread has released it. A reference to its tensors
    would not be enough, since torch takes the interpreter's lock as soon as Python's reference is
    the last one.
    """

    def __init__(self, rank: int, size: int, backend: Any) -> None:
        super().__init__(rank, size)
        self._backend = backend
        self._over = False
        self._lock = threading.Lock()
        self._waiting: set[torch.futures.Future[Any]] = set()
        #: The newest exchange that each thread has ended: it lets go of one as it takes the next.
        self._newest: dict[int, Any] = {}
        #: Exchanges that gloo has not ended, and True if one of them failed.
        self.open, self.failed = 0, False
        #: Of callbacks that gloo's threads have called and not let go of.
        self._called: WeakSet[_Hold] = WeakSet()
        _groups.add(self)

    allgather, allreduce = _followed("allgather"), _followed("allreduce")
    allreduce_coalesced, barrier = _followed("allreduce_coalesced"), _followed("barrier")
    alltoall_base, broadcast = _followed("alltoall_base"), _followed("broadcast")
    reduce_scatter = _followed("reduce_scatter")
    #: gloo has no future for these, nor do its threads make them.
    send, recv = _passed("send"), _passed("recv")

    def end(self) -> None:
        """Make all waiting exchanges raise an error."""
        with self._lock:
            self._over = True
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            future.set_result(RuntimeError(_OVER))

    def _follow(self, work: Any) -> _Exchange:
        future: torch.futures.Future[Any] = torch.futures.Future()
        with self._lock:
            if self._over:
                raise RuntimeError(_OVER)
            self._waiting.add(future)
            self.open += 1
        # An error that ``set_exception`` sets would be a result to torch's own code.
        result = future.then(_result)
        work.get_future().add_done_callback(partial(self._ended, future, work, _Hold()))
        return _Exchange(result)

    @property
    def calls(self) -> bool:
        """True if a thread of gloo calls Python, or is about to."""
        return bool(self._called) or (self.open > 0 and not self._over)

    def _ended(
        self,
        future: torch.futures.Future[Any],
        work: Any,
        hold: _Hold,
        done: torch.futures.Future[Any],
    ) -> None:
        """Complete the future of an exchange; this runs on gloo's thread, which still holds the
        exchange.
        """
        self._called.add(hold)
        self._newest[threading.get_ident()] = work
        with self._lock:
            self.open -= 1
            if future not in self._waiting:
                return
            self._waiting.remove(future)
        try:
            future.set_result(done.value())
        except RuntimeError as failed:
            self.failed = True  # before anybody is told
            future.set_result(failed)


@atexit.register
def _let_go() -> None:
    """Wait, before the interpreter ends, until gloo's threads have let go.

    A thread that asks for the interpreter's lock afterwards is unwound through C++, which ends the
    process by a signal.
    """
    until = time.monotonic() + _LET_GO_SECONDS
    while any(group.calls for group in list(_groups)) and time.monotonic() < until:
        time.sleep(0.001)


def _result(future: torch.futures.Future[Any]) -> Any:
    value = future.value()
    if isinstance(value, RuntimeError):
        raise value
    return value


class SessionGroup:
    """The process group of one world, over which its members exchange tensors."""

    def __init__(self, group: Any, backend: Any, ends: set[Address], device: torch.device) -> None:
        """Only ``build`` calls this."""
        self.rank, self.size, self.group = group.rank(), group.size(), group
        self._backend, self._ends, self._cuda = backend, ends, device.type == "cuda"
        #: Where tensors are that are exchanged. It is the script's: each thread has a current
        #: device of its own, and that of one that builds a group is always the first.
        self.device = device
        self.ended = False
        #: gloo's send and receive know no other time-out than that of its connections.
        self._patience = () if self._cuda else (_FOREVER,)

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """Return the values of every member, by rank."""
        mine = torch.tensor(list(values), dtype=torch.int64, device=self.device)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        self.group.allgather([found], [mine]).wait()
        return [each.tolist() for each in found]

    def send(self, tensor: torch.Tensor, rank: int) -> None:
        self.group.send([tensor.contiguous()], rank, 0).wait(*self._patience)

    def receive(self, tensor: torch.Tensor, rank: int) -> None:
        """Receive a tensor from one member into ``tensor``."""
        into = tensor if tensor.is_contiguous() else torch.empty_like(tensor).contiguous()
        self.group.recv([into], rank, 0).wait(*self._patience)
        if into is not tensor:
            tensor.copy_(into)

    def end(self) -> None:
        """End the group: every exchange, waiting or later, raises an error at all members."""
        self.ended = True
        if self._cuda:
            self._backend.abort()
        else:
            shut(self._ends)
            self.group.end()

    @property
    def broken(self) -> bool:
        """True if an exchange failed; failures of NCCL are known only after the group has ended."""
        return self.ended or (not self._cuda and self.group.failed)

    @property
    def still(self) -> bool:
        """True unless an exchange of a gloo group is in progress."""
        return bool(self._cuda or self.group.open == 0)


def build(
    store: RendezvousStore, rank: int, size: int, *, host: str, device: torch.device
) -> SessionGroup:
    """Connect all members of ``store``'s world; return the group for tensors on ``device``.

    Raises:
        RuntimeError: the members do not meet.
    """
    cuda = device.type == "cuda"
    made = _nccl(store, rank, size, device) if cuda else _gloo(store, rank, size, host)
    kind, backend, ends = made
    nccl = dist.ProcessGroup(store, rank, size) if cuda else None
    group = nccl or Exchanges(rank, size, backend)
    group._set_default_backend(kind)
    group._register_backend(torch.device("cuda" if cuda else "cpu"), kind, backend)
    return SessionGroup(group, backend, ends, device)


def _gloo(store: RendezvousStore, rank: int, size: int, host: str) -> tuple[Any, Any, set[Address]]:
    for attempt in range(_ATTEMPTS):
        backend, ends = _connect(store, rank, size, host, attempt)
        if backend is not None:
            return dist.ProcessGroup.BackendType.GLOO, backend, ends if size > 1 else set()
    raise RuntimeError(f"members could not be connected in {_ATTEMPTS} attempts")


def _connect(
    store: RendezvousStore, rank: int, size: int, host: str, attempt: int
) -> tuple[Any, set[Address]]:
    """Connect to all members once all listen; return no backend if one could not.

    A connection may get lost, even over loopback, and gloo would wait for it as long as for an
    exchange.
    """
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=_CONNECT_SECONDS * 2**attempt)
    with _building:
        before = {port for _, port in listening()}
        options._devices = devices(host, os.environ.get("GLOO_SOCKET_IFNAME", ""))
        mine = [end for end in listening() if end[1] not in before]
    store.set(f"{attempt}/ends/{rank}", " ".join(f"{at} {port}" for at, port in mine))
    ends = {end for each in range(size) for end in _ends(store.get(f"{attempt}/ends/{each}"))}
    try:
        if not mine:  # then nobody could end what is connected to it
            raise RuntimeError("no listening socket of gloo's device was found")
        backend = dist.ProcessGroupGloo(dist.PrefixStore(f"{attempt}", store), rank, size, options)
    except (RuntimeError, TimeoutError):
        backend = None
    store.set(f"{attempt}/met/{rank}", "no" if backend is None else "yes")
    if any(store.get(f"{attempt}/met/{each}") != b"yes" for each in range(size)):
        if backend is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))  # it may hang where it goes early
        return None, set()
    backend._set_default_timeout(_FOREVER)
    return backend, ends


def devices(host: str, interfaces: str) -> list[Any]:
    """Return the gloo devices that listen for peers.

    If torch is given ``interfaces``, one device listens on each. Otherwise one device listens on
    ``host``, where peers reach this machine. If ``host`` is not an address of this machine, the
    device listens under the machine's name, as in torch.
    """
    if interfaces:
        names = interfaces.split(",")
        return [dist.ProcessGroupGloo.create_device(interface=each) for each in names]
    try:
        return [dist.ProcessGroupGloo.create_device(hostname=host)]
    except RuntimeError:
        return [dist.ProcessGroupGloo.create_default_device()]


def _nccl(
    store: RendezvousStore, rank: int, size: int, device: torch.device
) -> tuple[Any, Any, set[Address]]:
    # An exchange that is aborted ends here; by torchrun's setting its process would.
    os.environ.update(_NCCL)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = _FOREVER
    backend = dist.ProcessGroupNCCL(store, rank, size, options)
    # Now, while the old world trains: else the new world's first exchange would connect.
    backend.eager_connect_single_device(device)
    return dist.ProcessGroup.BackendType.NCCL, backend, set()


def _ends(told: bytes) -> list[Address]:
    words = told.decode().split()
    return [(at, int(port)) for at, port in zip(words[::2], words[1::2], strict=True)]


class RetiredGroups:
    """Groups of earlier worlds, kept until their threads are idle: torch 2.13 may hang if a group
    is destroyed while its threads are busy.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[float, Any]] = []

    def keep(self, group: SessionGroup) -> None:
        """Keep an old group, and drop those that have been idle for ``STILL_SECONDS``."""
        now = time.monotonic()
        for at, old in list(self._kept):
            if now - at > STILL_SECONDS and old.still:
                self._kept.remove((at, old))
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(old.group))
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(old._backend))
        self._kept.append((now, group))

    @staticmethod
    def hold(group: SessionGroup) -> None:
        """Keep a group alive beyond the end of the interpreter."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group.group))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group._backend))
