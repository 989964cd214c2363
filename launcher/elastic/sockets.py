"""The TCP sockets of this process, because gloo does not report which sockets it opens."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

Address = tuple[str, int]


def listening() -> list[Address]:
    """Return the addresses at which this process listens."""
    return [own for _, own, peer in _connections() if peer is None]


def shut(ends: set[Address]) -> None:
    """Shut down the connections that have a local or remote address in ``ends``."""

    def shut_one(found: socket.socket) -> None:
        # Asked anew: the descriptor may be another socket's by now, which listens.
        own, peer = _addresses(found) or (None, None)
        if peer is not None and (own in ends or peer in ends):
            found.shutdown(socket.SHUT_RDWR)

    for fd, _, peer in _connections():
        if peer is not None:
            _with_socket(fd, shut_one)


def _connections() -> list[tuple[int, Address, Address | None]]:
    """Return this process's TCP sockets: descriptor, own address, peer's address."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            is_socket = os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue
        said = _with_socket(int(name), _addresses) if is_socket else None
        if said is not None:
            found.append((int(name), *said))
    return found


def _addresses(found: socket.socket) -> tuple[Address, Address | None] | None:
    if found.type != socket.SOCK_STREAM or found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    peer = None
    with suppress(OSError):
        peer = _plain(found.getpeername())
    return _plain(found.getsockname()), peer


def _plain(address: Any) -> Address:
    return str(address[0]).removeprefix("::ffff:"), int(address[1])


def _with_socket(fd: int, act: Any) -> Any:
    """Return the result of ``act`` on a descriptor's socket; None where the socket is gone."""
    try:
        own = os.dup(fd)
    except OSError:
        return None
    try:
        copy = socket.socket(fileno=own)
    except OSError:  # it is another file by now
        return os.close(own)
    try:
        return act(copy)
    except OSError:
        return None
    finally:
        copy.close()
