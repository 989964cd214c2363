"""What a script holds: the model of the present world, the loop's place in it, and one step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from launcher.elastic.parts import WHOLE, Part

B = TypeVar("B")


def join(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    sampler: Any = None,
    state: Mapping[str, Any] | None = None,
    steps: int = 0,
    **parallel: Any,
) -> Session:
    """Take part in the job's world; in one that trains already, with the state that it has by now.

    ``sampler`` is an ``elastic.Sampler`` or has its methods. ``state`` names what else newcomers
    need: objects with ``state_dict`` and ``load_state_dict`` (a scheduler, a scaler). ``steps`` is
    how far a checkpoint that was loaded has come. ``parallel`` goes to DistributedDataParallel.

    Raises:
        BadInput: the model is sharded over processes.
    """
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    return Session(model, optimizers, sampler, dict(state or {}), steps, parallel)


class Session:
    """One process's part in the worlds of its job. Made by ``join``."""

    def __init__(
        self,
        module: torch.nn.Module,
        optimizers: list[torch.optim.Optimizer],
        sampler: Any,
        state: dict[str, Any],
        steps: int,
        parallel: dict[str, Any],
    ) -> None:
        """Use ``join``."""
        self.module, self.optimizers, self.sampler, self.extras = module, optimizers, sampler, state
        #: Optimizer steps of the job, the same on all ranks.
        self.steps = steps
        self._epoch = 0
        self._part: Part = WHOLE
        self._parallel = parallel
        self._step = Step(self)
        #: RANK and WORLD_SIZE of this process now.
        self.rank, self.size = 0, 1
        #: The network to call, of the present world: ask anew at each step.
        self.model: torch.nn.Module = module
        #: Epoch of the present world; 0 where no ``brain-run`` started this process.
        self.world = 0
        self._begin_alone()

    @property
    def elastic(self) -> bool:
        """Whether worlds can change without ending this process."""
        return False

    @property
    def epoch(self) -> int:
        """Passes over the data that are complete."""
        return self._epoch if self.sampler is None else int(self.sampler.epoch)

    def step(self) -> Step:
        """One optimizer step, or with accumulation one micro-batch of it: ``with session.step()``.

        What the block raises because a peer is gone is swallowed, once this process is in the next
        world; then the step has not been counted, and is done again.
        """
        return self._step

    def batches(self, loader: Iterable[B]) -> Iterator[B]:
        """The rest of this epoch: by the sampler where there is one, else what ``loader`` gives,
        where a batch whose step failed comes again."""
        if self.sampler is not None:
            for batch, part in self.sampler.over(loader):
                self._part = part
                yield batch
            return
        for batch in loader:
            yield batch

    def epochs(self, count: int) -> Iterator[int]:
        """Number the epochs up to ``count``, from the one that the job is in."""
        while self.epoch < count:
            yield self.epoch
            self._epoch += 1

    def _begin_alone(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            cuda = any(each.is_cuda for each in self.module.parameters())
            dist.init_process_group("nccl" if cuda else "gloo")
        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
            self.model = DistributedDataParallel(self.module, **self._parallel)
        if self.sampler is not None:
            self.sampler.reshard(self.rank, self.size)

    def _count(self) -> None:
        self.steps += 1
        if self.sampler is not None:
            self.sampler.step()


class Step:
    """What ``with session.step()`` enters; one object for all steps of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._quiet: Any = None

    def __enter__(self) -> Part:
        part = self._session._part
        if not part.last and isinstance(self._session.model, DistributedDataParallel):
            self._quiet = self._session.model.no_sync()
            self._quiet.__enter__()
        return part

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool | None:
        session = self._session
        if self._quiet is not None:
            quiet, self._quiet = self._quiet, None
            quiet.__exit__(kind, error, trace)
        if error is None and session._part.last:
            session._count()
        return False
