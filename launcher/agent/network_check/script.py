"""Time this node's arithmetic and its exchanges with a few other nodes.

The agent runs this file by its path under the workers' interpreter (CPython 3.8 or later), which
cannot import Brain.

    script.py RANK SIZE HOST PORT SECONDS [EDGE MEBIBYTES REPEATS]

With torch, the script times matrix products on the accelerator (or the CPU) and all-reduces of 16
MiB. Without torch, it times plain loops, and sends as many bytes over TCP in a ring. Each timing is
repeated, and the result is the median with its standard error, so a single interruption does not
matter. The script prints ``{ok, reason, compute_seconds, compute_error, exchange_seconds,
exchange_error, kind, torch}`` as its last line; the agent ignores all other output.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import os
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Rank, size, host, port, seconds.
    Place = tuple[int, int, str, int, float]
    #: Median seconds and their standard error.
    Timed = tuple[float, float]

#: Seconds that timing one thing shall take at most; so many timings there are at least.
_SECONDS, _LEAST = 3.0, 5


def with_torch(
    torch: Any, place: Place, edge: int, mebibytes: int, repeats: int
) -> tuple[Timed, Timed, str]:
    """Measure with torch. Return the time of the arithmetic and the time of the exchange, each in
    seconds with its standard error, and the kind of device.
    """
    rank, size, host, port, seconds = place
    cuda = torch.cuda.is_available()
    kind = torch.cuda.get_device_name(0) if cuda else "cpu"
    devices = [f"cuda:{n}" for n in range(torch.cuda.device_count())] if cuda else ["cpu"]
    # Of several devices the slowest counts: all wait for it.
    compute = max(multiplied(torch, device, edge, repeats) for device in devices)
    if size == 1:
        return compute, (0.0, 0.0), kind
    dist = importlib.import_module("torch.distributed")
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"tcp://{host}:{port}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=seconds),
    )
    content = torch.ones(mebibytes << 18, device=devices[0])

    def reduce() -> None:
        dist.all_reduce(content)
        if cuda:
            torch.cuda.synchronize()

    def agree(count: int) -> int:
        least = torch.tensor([count], device=devices[0])
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        return int(least.item())

    exchange = typical(reduce, repeats, agree)
    dist.destroy_process_group()
    return compute, exchange, kind


def multiplied(torch: Any, device: str, edge: int, repeats: int) -> Timed:
    """Return the time of five matrix products on one device, in seconds with its standard error."""
    cuda = device != "cpu"
    dtype = torch.bfloat16 if cuda else torch.float32
    edge = edge or (8192 if cuda else 384)
    factor = torch.ones(edge, edge, device=device, dtype=dtype)

    def multiply() -> None:
        for _ in range(5):
            torch.mm(factor, factor)
        if cuda:
            torch.cuda.synchronize(device)

    return typical(multiply, repeats)


def without_torch(
    place: Place, edge: int, mebibytes: int, repeats: int
) -> tuple[Timed, Timed, str]:
    """Measure without torch, and return the same values as ``with_torch``; the loop makes ``edge``
    × 100 iterations.
    """
    rank, size, host, port, seconds = place
    loops = 100 * (edge or 600)
    compute = typical(lambda: sum(n * n for n in range(loops)), repeats)
    if size == 1:
        return compute, (0.0, 0.0), "cpu"
    left, right = ring(rank, size, host.strip("[]"), port, seconds)
    content = b"x" * (1 << 20)

    def exchange() -> None:
        for _ in range(mebibytes):
            if rank == 0:
                right.sendall(content)
                receive(left, len(content))
            else:
                receive(left, len(content))
                right.sendall(content)

    def agree(count: int) -> int:
        # Round the ring twice: the least is found, then told.
        for _ in range(2):
            if rank == 0:
                right.sendall(struct.pack("<I", count))
                count = struct.unpack("<I", received(left, 4))[0]
            else:
                count = min(count, struct.unpack("<I", received(left, 4))[0])
                right.sendall(struct.pack("<I", count))
        return count

    return compute, typical(exchange, repeats, agree), "cpu"


def ring(
    rank: int, size: int, host: str, port: int, seconds: float
) -> tuple[socket.socket, socket.socket]:
    """Return the socket that receives from the left neighbour, and the socket that sends to the
    right one. Rank 0 sends all ranks the addresses.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.settimeout(seconds)
    listening.bind(("", 0))
    listening.listen(1)
    mine = listening.getsockname()[1]
    if rank == 0:
        meeting = socket.create_server((host, port), family=family)
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
    """Connect to a rank, with retries until the rank listens; return the socket."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), seconds)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(connection: socket.socket, count: int) -> None:
    """Read ``count`` bytes and discard them.

    Raises:
        OSError: the other node closed the connection.
    """
    while count:
        got = len(connection.recv(min(count, 1 << 20)))
        if not got:
            raise OSError("the other node closed the connection")
        count -= got


def received(connection: socket.socket, count: int) -> bytes:
    """Return exactly ``count`` bytes.

    Raises:
        OSError: the other node closed the connection.
    """
    found = connection.recv(count, socket.MSG_WAITALL)
    if len(found) < count:
        raise OSError("the other node closed the connection")
    return found


def typical(act: Callable[[], object], repeats: int, agree: Callable[[int], int] = int) -> Timed:
    """Return the median of many timings and its standard error, in seconds, after one warm-up run.

    If one run takes long, there are fewer runs; ``agree`` gives all participants the same number of
    runs.
    """
    act()
    first = timed(act)
    count = agree(max(_LEAST, min(repeats, int(_SECONDS / max(first, 1e-6)))))
    found = sorted([first, *(timed(act) for _ in range(count - 1))])
    # Half of normal noise lies between the quartiles, 1.349 standard deviations apart; a median's
    # error is 1.2533 of a mean's.
    spread = (found[3 * count // 4] - found[count // 4]) / 1.349
    return found[count // 2], 1.2533 * spread / count**0.5


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that a call of ``act`` takes."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def main() -> None:
    """Measure, and print the result as one line of JSON."""
    rank, size, host, port, seconds = sys.argv[1:6]
    place = (int(rank), int(size), host, int(port), float(seconds))
    edge, mebibytes, repeats = [int(word) for word in sys.argv[6:9]] or [0, 16, 40]
    del sys.path[0]  # our directory
    torch: Any = None
    with contextlib.suppress(ImportError):  # plain Python will do
        torch = importlib.import_module("torch")
    told: dict[str, object] = {"ok": True, "reason": "", "torch": torch is not None}
    # For tests, and for whoever wants to see what a slow node would mean.
    time.sleep(float(os.environ.get("BRAIN_CHECK_PAUSE_SECONDS", "0")))
    try:
        if torch is None:
            compute, exchange, kind = without_torch(place, edge, mebibytes, repeats)
        else:
            compute, exchange, kind = with_torch(torch, place, edge, mebibytes, repeats)
        told.update(compute_seconds=compute[0], compute_error=compute[1], kind=kind)
        told.update(exchange_seconds=exchange[0], exchange_error=exchange[1])
    except Exception as failed:  # noqa: BLE001  whatever a broken node raises is its verdict
        told.update(ok=False, reason=f"{type(failed).__name__}: {failed}"[:500])
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a broken backend may hang in its destructors


if __name__ == "__main__":
    main()
