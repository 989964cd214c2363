"""A sampler for training in lockstep, whose state is the epoch and the number of examples trained
in it.

Each epoch has one order, which is the same for every world. A step trains on the next
``global_batch`` examples of this order, and the share of each rank depends only on the world of
that step. So after k steps exactly the first k global batches are consumed, however the world
changed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from brain.errors import BadInput
from launcher.data.order import ExampleOrder
from launcher.data.planning import Micro, plan, weight

B = TypeVar("B")
#: Settings that must not change between saving and loading, because they decide the order.
_FIXED = ("size", "seed", "shuffle")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One rank's part of one global batch, as places in the epoch's order."""

    start: int
    size: int
    #: Places that the ranks before this one take.
    before: int
    #: Sizes of this rank's micro-batches.
    mine: tuple[int, ...]


class Sampler:
    """A ``batch_sampler`` for a DataLoader: an item is the list of indices of one micro-batch.

    Iterating changes no state, so it does not matter how far a loader's workers read ahead:
    ``step`` counts trained batches. Iterate with ``over``, which restarts the loader when the world
    has changed.
    """

    def __init__(
        self,
        size: int,
        *,
        global_batch: int,
        most_per_replica: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        keep_last: bool = True,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        """Sample ``range(size)``, ``global_batch`` a step, by micro-batches of at most
        ``most_per_replica``.

        ``keep_last=False`` leaves out the examples at the end of an epoch that fill no global
        batch; with shuffling these differ in each epoch. Rank and world are those of the process
        unless given.

        Raises:
            BadInput: the arguments leave nothing to sample.
        """
        self._size, self._seed, self._shuffle = size, seed, shuffle
        self._global_batch, self._most = global_batch, most_per_replica
        self._keep_last = keep_last
        self._version = 0
        self.epoch = self.consumed = 0
        self.reshard(
            int(os.environ.get("RANK", "0")) if rank is None else rank,
            int(os.environ.get("WORLD_SIZE", "1")) if world is None else world,
        )
        if self.steps_per_epoch < 1:
            raise BadInput(
                f"size: {size} examples do not fill one batch of {global_batch}; keep the last "
                "batch, or use a smaller batch",
                field="size",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimizer steps in a whole epoch."""
        whole, rest = divmod(self._size, self._global_batch)
        return whole + bool(rest and self._keep_last)

    @property
    def steps_left(self) -> int:
        """Number of optimizer steps left in this epoch; the last step may have fewer examples."""
        left = self._end - self.consumed
        return -(-left // self._global_batch)

    def __len__(self) -> int:
        """Number of micro-batches left for this rank in this epoch."""
        return sum(len(step.mine) for step in self._steps())

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's part of the rest of the epoch, micro-batch by micro-batch.

        With more ranks than examples, a rank that takes no example gets a filler of one index whose
        weight is 0.
        """
        order = ExampleOrder(self._size, seed=self._seed, epoch=self.epoch, shuffle=self._shuffle)
        for step in self._steps():
            first = step.start + step.before
            for size in step.mine:
                yield [order[place] for place in range(first, first + size)] or [order[step.start]]
                first += size

    def over(self, loader: Iterable[B]) -> Iterator[tuple[B, Micro]]:
        """Iterate over the rest of this epoch: yield each batch of ``loader`` with its size and
        weight.

        If ``reshard`` or ``load_state_dict`` is called during the loop, ``loader`` starts again
        after the consumed examples; examples that it had read ahead are dropped without having been
        trained.

        Raises:
            BadInput: an epoch ended without a call of ``step``.
        """
        epoch, version = self.epoch, -1
        while version != self._version and self.epoch == epoch:
            version, consumed = self._version, self.consumed
            for batch, micro in zip(loader, self._micros(), strict=False):
                yield batch, micro
                if version != self._version:
                    break
            else:
                if (epoch, consumed) == (self.epoch, self.consumed):
                    raise BadInput(
                        "step: an epoch ended but no step was counted; call sampler.step() "
                        "after optimizer.step()",
                        field="step",
                    )

    def step(self) -> None:
        """Count one trained global batch; every rank must call this method after each optimizer
        step.
        """
        self.consumed = min(self.consumed + self._global_batch, self._end)
        self._roll()

    def reshard(self, rank: int, world: int) -> None:
        """Use the share of another rank, in another world, from the next global batch on.

        Raises:
            BadInput: there is no such rank.
        """
        if not 0 <= rank < world:
            raise BadInput(
                f"rank: {rank} is not in a world of size {world}; give a rank from 0 to one less "
                "than the size",
                field="rank",
            )
        self._rank, self._world = rank, world
        self._plan = plan(self._global_batch, world, self._most)
        self._version += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of training and the settings of the order, which are the same on
        every rank.
        """
        return {
            "epoch": self.epoch,
            "consumed": self.consumed,
            "size": self._size,
            "seed": self._seed,
            "shuffle": self._shuffle,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state. The global batch may differ; the data may not.

        Raises:
            BadInput: the state belongs to other data or to another order.
        """
        now = self.state_dict()
        for field in _FIXED:
            if state[field] != now[field]:
                raise BadInput(
                    f"{field}: the checkpoint was trained with {state[field]}, but this "
                    f"sampler has {now[field]}; use the checkpoint's value, or start without "
                    "its state",
                    field=field,
                )
        self.epoch, self.consumed = int(state["epoch"]), int(state["consumed"])
        self._roll()  # a larger batch leaves more out, where the last one is left out
        self._version += 1

    def _roll(self) -> None:
        if self.consumed >= self._end:
            self.epoch, self.consumed = self.epoch + 1, 0

    @property
    def _end(self) -> int:
        """Return the end of the epoch, counted from the examples already consumed."""
        if self._keep_last:
            return self._size
        return self._size - (self._size - self.consumed) % self._global_batch

    def _steps(self) -> Iterator[_Step]:
        """Yield this rank's parts of the rest of the epoch, for the present world."""
        end, rank, world, shares = self._end, self._rank, self._world, self._plan
        before = sum(sum(sizes) for sizes in shares[:rank])
        for start in range(self.consumed, end, self._global_batch):
            size = min(self._global_batch, end - start)
            if size < self._global_batch:
                shares = plan(size, world, self._most)
                before = sum(sum(sizes) for sizes in shares[:rank])
            yield _Step(start=start, size=size, before=before, mine=shares[rank])

    def _micros(self) -> Iterator[Micro]:
        world = self._world
        for step in self._steps():
            for number, size in enumerate(step.mine, 1):
                yield Micro(
                    size=size,
                    weight=weight(size, step.size, world),
                    last=number == len(step.mine),
                )
