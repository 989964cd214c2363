"""Sends newcomers the state of the loop, the network and its optimizers.

Every member reports its completed steps. A member that is behind receives the state from an
up-to-date member; the sending members share the work. The structure of the state is sent first,
with a number in place of each tensor. Tensors on the group's device are then sent, and received in
place if the receiver has the tensor.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from launcher.elastic.groups import SessionGroup

#: A member's progress: completed steps, and the optimizers' part of the next step.
Place = tuple[int, int]
#: Progress of a member that has no state, or only a part of one.
NOTHING: Place = (-1, 0)


def givers(places: Sequence[Place]) -> dict[int, int]:
    """Assign a sender of state to each rank that is behind; the most advanced ranks take turns.

    Args:
        places: each rank's progress, by rank; ``NOTHING`` if it has no state.

    Returns:
        rank that receives -> rank that gives.

    >>> givers([(7, 0), (7, 0), NOTHING, NOTHING, (6, 1)])
    {2: 0, 3: 1, 4: 0}

    Raises:
        RuntimeError: no rank has a state.
    """
    most = max(places)
    if most == NOTHING:
        raise RuntimeError("no member of the new world has a complete state")
    ahead = [rank for rank, each in enumerate(places) if each == most]
    behind = [rank for rank, each in enumerate(places) if each != most]
    return {rank: ahead[at % len(ahead)] for at, rank in enumerate(behind)}


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Stands for a tensor in an outline."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    """The objects whose state newcomers receive: the network, the optimizers, and other objects by
    name.
    """

    module: torch.nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    #: Name -> object with ``state_dict`` and ``load_state_dict``.
    others: Mapping[str, Any]

    def restart_scalers(self) -> None:
        """Let gradient scalers unscale the gradients of a repeated step again."""
        for each in self.others.values():
            # A scaler that has scaled no loss yet has no scale to set.
            if isinstance(each, torch.amp.GradScaler) and each._scale is not None:
                each.update(each.get_scale())


def give(group: SessionGroup, rank: int, held: CarriedState, loop: Mapping[str, Any]) -> None:
    """Send this process's state to one member of the new world, together with ``loop``."""
    tensors: list[torch.Tensor] = []
    outline = {
        "loop": dict(loop),
        "optimizers": [_outlined(o.state_dict(), tensors, group) for o in held.optimizers],
        "others": {name: each.state_dict() for name, each in held.others.items()},
        "near": [t for t in _network(held.module) if not _travels(t, group)],
    }
    content = bytearray(pickle.dumps(outline))
    words = torch.frombuffer(content, dtype=torch.uint8).to(group.device)
    group.send(torch.tensor([len(words)], device=group.device), rank)
    group.send(words, rank)
    for tensor in [t for t in _network(held.module) if _travels(t, group)] + tensors:
        group.send(tensor, rank)


def take(group: SessionGroup, rank: int, held: CarriedState) -> dict[str, Any]:
    """Receive the state from one member of the new world into this process; return that member's
    ``loop``.
    """
    length = torch.zeros(1, dtype=torch.int64, device=group.device)
    group.receive(length, rank)
    words = torch.empty(int(length), dtype=torch.uint8, device=group.device)
    group.receive(words, rank)
    words = words.cpu()
    # As trusted as the gradients that come the same way.
    outline = pickle.loads(ctypes.string_at(words.data_ptr(), len(words)))
    for tensor in _network(held.module):
        if _travels(tensor, group):
            group.receive(tensor, rank)
        else:
            tensor.copy_(outline["near"].pop(0))
    states = [_filled(each, group, rank) for each in outline["optimizers"]]
    for optimizer, state in zip(held.optimizers, states, strict=True):
        optimizer.load_state_dict(state)
    for name, each in held.others.items():
        each.load_state_dict(outline["others"][name])
    loop: dict[str, Any] = outline["loop"]
    return loop


def _network(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Return all tensors of a network, in an order that is the same on every rank."""
    for each in (*module.parameters(), *module.buffers()):
        yield each.detach()


def _travels(tensor: torch.Tensor, group: SessionGroup) -> bool:
    return bool(tensor.device.type == torch.device(group.device).type and tensor.numel() > 0)


def _outlined(state: Any, tensors: list[torch.Tensor], group: SessionGroup) -> Any:
    if isinstance(state, torch.Tensor) and _travels(state, group):
        tensors.append(state)
        return _Tensor(len(tensors) - 1, tuple(state.shape), state.dtype)
    if isinstance(state, dict):
        return {key: _outlined(each, tensors, group) for key, each in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_outlined(each, tensors, group) for each in state)
    return state


def _filled(outline: Any, group: SessionGroup, rank: int) -> Any:
    """Receive the tensors of an outline, in the order in which they were found."""
    if isinstance(outline, _Tensor):
        tensor = torch.empty(outline.shape, dtype=outline.dtype, device=group.device)
        group.receive(tensor, rank)
        return tensor
    if isinstance(outline, dict):
        return {key: _filled(each, group, rank) for key, each in outline.items()}
    if isinstance(outline, list | tuple):
        return type(outline)(_filled(each, group, rank) for each in outline)
    return outline
