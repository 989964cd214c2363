"""``torchrun --rdzv-backend=brain``: our worlds for those who keep torchrun.

torchrun starts and watches the workers as ever; who meets whom is decided by the coordinator of
``launcher.coordinator``, with the same frames and rules as under ``brain-run``. Memberships are
pushed, a notice to leave is passed on at once, ranks follow the topology, and a world that was
replaced never goes on beside its successor.

    settings   --rdzv-conf and the other parameters, read and checked
    guest      an agent's part in worlds while torchrun runs the workers; a loop in a thread
    handler    torch's interface; the one module of the launcher that imports torch
"""

from collections.abc import Callable
from typing import Any


def handlers() -> Callable[[Any], Any]:
    """Return what makes a handler of ``RendezvousParameters``: the entry point for torchrun."""
    return _create


def _create(parameters: Any) -> Any:
    # Late: every program that imports torch's rendezvous, workers among them, loads all entry
    # points; only a torchrun that asks for this one shall pay for it.
    from launcher.rendezvous.handler import create

    return create(parameters)
