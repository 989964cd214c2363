"""Makes ranks meet without delay: all other ranks wait until rank 0's store listens.

``torch.distributed`` tries again 0.25 to 0.75 s after a refused connection. Forked workers connect
within milliseconds of one another, in any order. So every other rank first waits until rank 0
listens; unclear cases are left to torch. This module runs inside workers, uses only the standard
library and supports CPython 3.8 and later.
"""

import functools
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_POLL_SECONDS = 0.002
#: After this long it is torch's turn, with its own patience and its own words.
_AT_MOST_SECONDS = 10.0
_ANSWER_SECONDS = 1.0


def begin() -> None:
    """If torch is imported, make the script's next ``init_process_group`` wait for rank 0."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None and hasattr(module, "rendezvous"):
        _once(module)


def _once(module: "Any") -> None:
    original = module.rendezvous

    @functools.wraps(original)
    def meet(url: str, *args: "Any", **kwargs: "Any") -> "Any":
        if module.rendezvous is meet:
            module.rendezvous = original
        address = store_address(url, args)
        if address is not None:
            until_listening(*address)
        return original(url, *args, **kwargs)

    module.rendezvous = meet


def store_address(url: str, args: "tuple[Any, ...]") -> "tuple[str, int] | None":
    """Return the address of rank 0's store, to which this rank will connect.

    None if this rank uses no store, or the address is not known.
    """
    environ = os.environ
    own = args[0] if args and isinstance(args[0], int) and args[0] >= 0 else environ.get("RANK")
    if not str(url).startswith("env://") or own in (None, 0, "0"):
        return None
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return None
    host, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT", "")
    return (host, int(port)) if host and port.isdigit() else None


def until_listening(host: str, port: int, pause: "Callable[[float], Any]" = time.sleep) -> None:
    """Wait until a server listens at the address; return immediately if the address is
    uncertain.
    """
    until = time.monotonic() + _AT_MOST_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection((host, port), _ANSWER_SECONDS).close()
            return
        except ConnectionRefusedError:
            pause(_POLL_SECONDS)
        except OSError:
            return
