"""What a script holds: the model of the present world, the loop's place in it, and one step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from brain.errors import BadInput
from launcher.elastic import carrying, guests
from launcher.elastic.changing import Due, Plan
from launcher.elastic.failures import of_communication
from launcher.elastic.groups import Group
from launcher.elastic.member import Member
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
    Random numbers are each process's own: a newcomer's are those that the script seeded.

    Raises:
        BadInput: the model is sharded over processes, or parallel already.
    """
    _whole(model)
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    return Session(model, optimizers, sampler, dict(state or {}), steps, parallel)


def _whole(model: torch.nn.Module) -> None:
    """Refuse what one process does not hold all of."""
    kinds = {type(each).__name__ for each in (*model.modules(), *model.parameters())}
    if kinds & {"FullyShardedDataParallel", "FSDPModule", "DTensor"} or any(
        hasattr(each, "_fsdp_param_group") for each in model.modules()
    ):
        raise BadInput(
            "model: it is sharded over processes (FSDP, tensor or pipeline parallel), which no "
            "process can go on alone with; leave elastic.join out, and its world changes by the "
            "launcher's fast restart path",
            field="model",
        )
    if "DistributedDataParallel" in kinds:
        raise BadInput(
            "model: give the network itself, elastic.join makes it parallel", field="model"
        )


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
        self.module, self.optimizers, self.sampler = module, optimizers, sampler
        #: Optimizer steps of the job, the same on all ranks.
        self.steps = steps
        #: RANK and WORLD_SIZE of this process now.
        self.rank, self.size = 0, 1
        #: The network to call, of the present world: ask anew at each step.
        self.model: torch.nn.Module = module
        #: Epoch of the present world; 0 where no ``brain-run`` started this process.
        self.world = 0
        self._epoch = 0
        self._parallel = parallel
        others = state if sampler is None else {**state, "the sampler": sampler}
        self._held = carrying.Held(module=module, optimizers=optimizers, others=others)
        #: What of the present step the ``with`` is, and whether an optimizer has made it.
        self._part: Part = WHOLE
        self._applied = False
        #: Whether the state is complete, and whether it has ever trained.
        self._whole, self._fresh = True, True
        self._step = Step(self)
        self._member = guests.member(lambda: self.steps, self._cuda)
        if self._member is None:
            self._begin_alone()
        else:
            self._begin(self._member)

    @property
    def elastic(self) -> bool:
        """Whether worlds can change without ending this process."""
        return self._member is not None

    @property
    def epoch(self) -> int:
        """Passes over the data that are complete."""
        return self._epoch if self.sampler is None else int(self.sampler.epoch)

    def step(self) -> Step:
        """One optimizer step, or with accumulation one micro-batch of it: ``with session.step()``.

        What the block raises because a peer is gone is swallowed, once this process is in the next
        world; then the step has not been counted, and is done again. One that leaves the job
        leaves it here, by SystemExit.
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
            while True:
                steps, self._failures = self.steps, 0
                yield batch
                if not self._failures or self.steps > steps:
                    break

    def epochs(self, count: int) -> Iterator[int]:
        """Number the epochs up to ``count``, from the one that the job is in."""
        while self.epoch < count:
            yield self.epoch
            self._epoch += 1

    # --- worlds -----------------------------------------------------------------------------

    #: Steps that failed since ``batches`` gave the present batch.
    _failures = 0

    @property
    def _cuda(self) -> bool:
        return any(each.is_cuda for each in self.module.parameters())

    def _begin_alone(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if self._cuda else "gloo")
        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
            self.model = DistributedDataParallel(self.module, **self._parallel)
        if self.sampler is not None:
            self.sampler.reshard(self.rank, self.size)

    def _begin(self, member: Member) -> None:
        for optimizer in self.optimizers[-1:]:
            optimizer.register_step_post_hook(self._made)
        if self._cuda:
            self.optimizers[0].register_step_pre_hook(self._arrived)
        self._whole = not guests.joining()
        for optimizer in self.optimizers if guests.joining() else ():
            # What its first call imports and compiles, nobody shall wait for.
            optimizer.load_state_dict(optimizer.state_dict())
        member.open()
        member.begun()
        self._move(member)

    def _made(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._applied = True

    def _arrived(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """NCCL exchanges fail on the device, unseen: no optimizer may use what one of them left."""
        torch.cuda.current_stream().synchronize()
        if self._member is not None and self._member.ended:
            raise RuntimeError("NCCL: the group was ended, its gradients are not complete")

    def _count(self) -> None:
        self.steps += 1
        self._applied = self._fresh = False
        if self.sampler is not None:
            self.sampler.step()

    def _settle(self) -> None:
        """Between two steps: change the world where that is due."""
        member = self._member
        assert member is not None
        match member.due():
            case Due.MOVE:
                self._move(member)
            case Due.PART:
                member.part()
                raise SystemExit(0)

    def _recover(self, error: BaseException) -> bool:
        """A step failed; whether that was a peer's end, and this process is in the next world."""
        member = self._member
        if member is None or not isinstance(error, RuntimeError):
            return False
        if not (of_communication(error) or member.ended):
            return False
        if self._applied:
            self._count()
        self._failures += 1
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        member.broken(str(error))
        try:
            member.relieved()
        except TimeoutError as late:
            sys.stderr.write(f"brain: the session ends: {late}\n")
            return False
        self._move(member)
        return True

    def _move(self, member: Member) -> None:
        """Be in the next world; where its members cannot be reached either, in the one after."""
        while True:
            plan, group = member.take()
            try:
                self._enter(plan, group)
            except RuntimeError as error:
                if not (of_communication(error) or member.ended):
                    raise
                member.broken(str(error))
                member.relieved()
                continue
            member.moved(self.steps)
            return

    def _enter(self, plan: Plan, group: Group) -> None:
        if plan.now:
            mine = self.steps if self._whole else carrying.NOTHING
            said = group.gather([mine, self._fresh])
            givers = carrying.givers([steps for steps, _ in said])
            fresh = all(each[1] for each in said)
        else:  # who stays is at the step that all agreed to: nobody has to be asked, or waited for
            newcomers = set(plan.newcomers)
            steps = [carrying.NOTHING if r in newcomers else 0 for r in range(plan.size)]
            givers, fresh = carrying.givers(steps), False
        with torch.no_grad():
            for rank, giver in sorted(givers.items()):
                if plan.rank == giver:
                    loop = {"steps": self.steps, "epoch": self._epoch, "counted": guests.counted()}
                    carrying.give(group, rank, self._held, loop)
                elif plan.rank == rank:
                    self._take(group, giver)
        self.rank, self.size, self.world = plan.rank, plan.size, plan.epoch
        os.environ.update(plan.environment)
        guests.moved(plan)
        self._wrap(group, init_sync=fresh)
        if self.sampler is not None:
            self.sampler.reshard(self.rank, self.size)

    def _take(self, group: Group, giver: int) -> None:
        self._whole = False
        loop = carrying.take(group, giver, self._held)
        self.steps, self._epoch = loop["steps"], loop["epoch"]
        guests.count(loop["counted"])
        self._whole, self._fresh = True, False

    def _wrap(self, group: Group, *, init_sync: bool) -> None:
        old = self.model
        if isinstance(old, DistributedDataParallel):
            # Its hooks in the parameters go with it, and with nothing else that may hold on to it.
            old.reducer = old.logger = None
        self.model = DistributedDataParallel(
            self.module, process_group=group.group, init_sync=init_sync, **self._parallel
        )


class Step:
    """What ``with session.step()`` enters; one object for all steps of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._quiet: Any = None

    def __enter__(self) -> Part:
        session = self._session
        member, part = session._member, session._part
        # A batch that a sampler gave is of the present world, whatever comes now.
        if member is not None and member.watched and session.sampler is None:
            session._settle()
        if not part.last and isinstance(session.model, DistributedDataParallel):
            self._quiet = session.model.no_sync()
            self._quiet.__enter__()
        return part

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        session, member = self._session, self._session._member
        if self._quiet is not None:
            quiet, self._quiet = self._quiet, None
            quiet.__exit__(kind, error, trace)
        if error is not None:
            return session._recover(error)
        if session._part.last:
            session._count()
            if member is not None and member.watched:
                session._settle()
        return False
