"""Times this node's arithmetic and its exchanges with a few others. CPython 3.8 on.

Run by path under the workers' interpreter; nothing of ours is importable there.

    script.py RANK SIZE HOST PORT SECONDS

With torch: matrix products on the accelerator (else the CPU) and all-reduces of 16 MiB. Without:
plain loops, and as many bytes over TCP in a ring. Prints ``{ok, reason, compute_seconds,
exchange_seconds, kind, torch}`` as its last line; whatever else is printed is not looked at.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES = 16 << 20
_ROUNDS = 4


def with_torch(
    torch: Any, rank: int, size: int, host: str, port: int, seconds: float
) -> tuple[float, float, str]:
    """(seconds of arithmetic, seconds of exchanges, kind)."""
    cuda = torch.cuda.is_available()
    kind = torch.cuda.get_device_name(0) if cuda else "cpu"
    device = "cuda" if cuda else "cpu"
    edge, dtype = (8192, torch.bfloat16) if cuda else (384, torch.float32)
    factor = torch.ones(edge, edge, device=device, dtype=dtype)

    def multiply() -> None:
        for _ in range(20):
            torch.mm(factor, factor)
        if cuda:
            torch.cuda.synchronize()

    compute = best(multiply)
    if size == 1:
        return compute, 0.0, kind
    dist = importlib.import_module("torch.distributed")
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"tcp://{host}:{port}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=seconds),
    )
    content = torch.ones(_BYTES // 4, device=device)

    def reduce() -> None:
        dist.all_reduce(content)
        if cuda:
            torch.cuda.synchronize()

    exchange = best(reduce)
    dist.destroy_process_group()
    return compute, exchange, kind


def without_torch(
    rank: int, size: int, host: str, port: int, seconds: float
) -> tuple[float, float, str]:
    """The same with nothing but Python."""
    compute = best(lambda: sum(n * n for n in range(300000)))
    if size == 1:
        return compute, 0.0, "cpu"
    left, right = ring(rank, size, host.strip("[]"), port, seconds)
    content = b"x" * (1 << 20)

    def exchange() -> None:
        for _ in range(_BYTES >> 20):
            if rank == 0:
                right.sendall(content)
                receive(left, len(content))
            else:
                receive(left, len(content))
                right.sendall(content)

    return compute, best(exchange), "cpu"


def ring(
    rank: int, size: int, host: str, port: int, seconds: float
) -> tuple[socket.socket, socket.socket]:
    """Sockets from the left and to the right neighbour; rank 0 tells everybody the addresses."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.settimeout(seconds)
    listening.bind(("", 0))
    listening.listen(1)
    mine = listening.getsockname()[1]
    if rank == 0:
        meeting = socket.create_server((host, port))
        meeting.settimeout(seconds)
        told = {0: (host, mine)}
        guests = []
        while len(told) < size:
            guest, address = meeting.accept()
            guest.settimeout(seconds)
            said = json.loads(guest.makefile().readline())
            told[said["rank"]] = (address[0], said["port"])
            guests.append(guest)
        for guest in guests:
            guest.sendall((json.dumps([told[each] for each in range(size)]) + "\n").encode())
        addresses = [told[each] for each in range(size)]
    else:
        meeting = patient(host, port, seconds)
        meeting.sendall((json.dumps({"rank": rank, "port": mine}) + "\n").encode())
        addresses = json.loads(meeting.makefile().readline())
    right = socket.create_connection(tuple(addresses[(rank + 1) % size]), seconds)
    left, _ = listening.accept()
    left.settimeout(seconds)
    return left, right


def patient(host: str, port: int, seconds: float) -> socket.socket:
    """Connect to who may not listen yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), seconds)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(connection: socket.socket, count: int) -> None:
    """Read so many bytes and forget them."""
    while count:
        got = len(connection.recv(min(count, 1 << 20)))
        if not got:
            raise OSError("the other side went away")
        count -= got


def best(act: Callable[[], object]) -> float:
    """The shortest of a few times, after one that warms up."""
    act()
    found = []
    for _ in range(_ROUNDS):
        began = time.monotonic()
        act()
        found.append(time.monotonic() - began)
    return min(found)


def main() -> None:
    """Measure and print."""
    rank, size, host, port, seconds = sys.argv[1:]
    place = (int(rank), int(size), host, int(port), float(seconds))
    del sys.path[0]  # our directory
    torch: Any = None
    with contextlib.suppress(ImportError):  # plain Python will do
        torch = importlib.import_module("torch")
    told: dict[str, object] = {"ok": True, "reason": "", "torch": torch is not None}
    # For tests, and for whoever wants to see what a slow node would mean.
    time.sleep(float(os.environ.get("BRAIN_CHECK_PAUSE_SECONDS", "0")))
    try:
        if torch is None:
            compute, exchange, kind = without_torch(*place)
        else:
            compute, exchange, kind = with_torch(torch, *place)
        told.update(compute_seconds=compute, exchange_seconds=exchange, kind=kind)
    except Exception as failed:  # noqa: BLE001  whatever a broken node raises is its verdict
        told.update(ok=False, reason=f"{type(failed).__name__}: {failed}"[:500])
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a broken backend may hang in its destructors


if __name__ == "__main__":
    main()
