"""Workers started ahead, for jobs in which forking is unsafe: each does its own imports, and waits
for its specification.
"""

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from brain.errors import Unavailable
from launcher.workers.fork_server.channel import MESSAGE_BYTES, Channel, Child, Lacks


class ParkedWorker:
    """A waiting process that can become one worker."""

    def __init__(self, child: Child, ours: socket.socket) -> None:
        self.child = child
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        #: What the torch that it imported does not have.
        self.lacks: Lacks | None = None
        self._socket = ours
        self._loop = asyncio.get_running_loop()
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._hear)

    def become(self, spec: Mapping[str, Any], fds: Sequence[int]) -> Child:
        """Turn the process into the worker that ``spec`` describes, and return the worker's handle.

        Raises:
            Unavailable: the process is gone.
        """
        self._loop.remove_reader(self._socket.fileno())
        try:
            socket.send_fds(self._socket, [json.dumps({"spec": spec}).encode()], list(fds))
        except OSError as gone:
            self.child.drop()
            raise Unavailable(f"a parked process is gone: {gone}") from gone
        finally:
            self._socket.close()
        return self.child

    def close(self) -> None:
        """End the process."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _hear(self) -> None:
        try:
            said = self._socket.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._loop.remove_reader(self._socket.fileno())
        if said:
            self.lacks = Lacks.read(json.loads(said)["lacks"])
        if not self.ready.done():
            self.ready.set_result(bool(said))
        if not said:
            self.child.drop()


class ParkedWorkers:
    """The ``count`` waiting processes, forked from a server that has imported nothing."""

    def __init__(
        self,
        channel: Channel,
        modules: Sequence[str],
        count: int,
        devices: int | None,
        spec: Mapping[str, Any],
    ) -> None:
        """``devices`` are GPUs on which contexts are made ahead, in turn; with None no contexts are
        made. ``spec`` is a worker whose command line imports see.
        """
        self._channel, self._modules, self._count = channel, modules, count
        self._spec = spec
        self._devices, self._made = devices, 0
        self._waiting: list[ParkedWorker] = []
        self._filling: asyncio.Task[None] | None = None

    async def open(self) -> Lacks | None:
        """Start the first parked processes, and wait until each has imported its modules.

        Return the names that their torch lacks; None if it lacks none.
        """
        await self._fill()
        first = list(self._waiting)
        await asyncio.wait([parked.ready for parked in first] or [_done()])
        return next((parked.lacks for parked in first if parked.lacks is not None), None)

    async def take(self, spec: Mapping[str, Any], fds: Sequence[int]) -> Child:
        """Turn a parked process into a worker, and return the worker's handle. If no process is
        ready yet, wait for the first one.

        Raises:
            Unavailable: there is no such process.
        """
        while self._waiting:
            ready = [each for each in self._waiting if each.ready.done()]
            if not ready:
                waits = [each.ready for each in self._waiting]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                continue
            parked = ready[0]
            self._waiting.remove(parked)
            if parked.ready.result():
                self._refill()
                return parked.become(spec, fds)
        self._refill()
        raise Unavailable("no parked process is ready")

    def close(self) -> None:
        """End all waiting processes."""
        if self._filling is not None:
            self._filling.cancel()
        for parked in self._waiting:
            parked.close()

    def _refill(self) -> None:
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        while len(self._waiting) < self._count and self._channel.alive:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            device = None if self._devices is None else self._made % self._devices
            self._made += 1
            with theirs:
                order: dict[str, Any] = {
                    "do": "park",
                    "modules": list(self._modules),
                    "cuda": device,
                }
                order |= {"spec": dict(self._spec)}
                try:
                    child = await self._channel.make(order, [theirs.fileno()])
                except Unavailable:
                    ours.close()
                    return
            self._waiting.append(ParkedWorker(child, ours))


def _done() -> "asyncio.Future[bool]":
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    done.set_result(True)
    return done
