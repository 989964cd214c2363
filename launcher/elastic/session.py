"""A script's session: the network as wrapped for the present world, the position of the loop, and a
step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from brain.errors import BadInput
from launcher.elastic import carrying, guests
from launcher.elastic.changing import Due, Plan
from launcher.elastic.failures import of_communication
from launcher.elastic.groups import SessionGroup
from launcher.elastic.member import SessionMember
from launcher.elastic.parts import WHOLE, StatePart
from launcher.values.console import say

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
    """Join the job's world and return a session; if the world is already training, receive its
    present state.

    ``sampler`` is an ``elastic.Sampler`` or has its methods. ``state`` names other objects that
    newcomers need, with ``state_dict`` and ``load_state_dict`` (a scheduler, a scaler). ``steps``
    is the number of completed steps in a loaded checkpoint. ``parallel`` has arguments for
    DistributedDataParallel. Random generators are not transferred: a newcomer has the generators
    that its own script seeded.

    Raises:
        BadInput: the model is sharded over processes, or already parallel; an object in ``state``
        has no state; this process already has a session.
    """
    _whole(model)
    _stateful(state or {})
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    return Session(model, optimizers, sampler, dict(state or {}), steps, parallel)


def _whole(model: torch.nn.Module) -> None:
    """Refuse a model that is sharded over processes, or already parallel."""
    kinds = {type(each).__name__ for each in (*model.modules(), *model.parameters())}
    if kinds & {"FullyShardedDataParallel", "FSDPModule", "DTensor"} or any(
        hasattr(each, "_fsdp_param_group") for each in model.modules()
    ):
        raise BadInput(
            "model: the model is sharded over processes (FSDP, tensor or pipeline parallel), so "
            "no process can go on alone; leave elastic.join out, so that the world changes "
            "through the launcher's fast restart path",
            field="model",
        )
    if "DistributedDataParallel" in kinds:
        raise BadInput(
            "model: give the network itself; elastic.join makes it data-parallel", field="model"
        )


def _stateful(state: Mapping[str, Any]) -> None:
    """Refuse objects whose state newcomers could not receive."""
    for name, each in state.items():
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise BadInput(
                f"state: {name} is a {type(each).__name__} without state_dict and "
                "load_state_dict; give an object that has both",
                field="state",
            )


class Session:
    """This process's membership in the worlds of its job, as ``join`` returns it."""

    def __init__(
        self,
        module: torch.nn.Module,
        optimizers: list[torch.optim.Optimizer],
        sampler: Any,
        state: dict[str, Any],
        steps: int,
        parallel: dict[str, Any],
    ) -> None:
        """Only ``join`` calls this."""
        self.module, self.optimizers, self.sampler = module, optimizers, sampler
        #: Optimizer steps of the job, the same on all ranks.
        self.steps = steps
        #: RANK and WORLD_SIZE of this process now.
        self.rank, self.size = 0, 1
        #: The network to call in the present world; read it again at each step.
        self.model: torch.nn.Module = module
        #: Epoch of the present world; 0 if ``brain-run`` did not start this process.
        self.world = 0
        self._epoch = 0
        self._parallel = parallel
        others = state if sampler is None else {**state, "the sampler": sampler}
        self._held = carrying.CarriedState(module=module, optimizers=optimizers, others=others)
        #: What of the present step the ``with`` is, and whether the sampler dealt it out.
        self._part: StatePart = WHOLE
        self._deals = False
        #: How many steps of optimizers the present one has, and whether one is being made.
        self._applied, self._applies = 0, False
        #: Whether steps are seen at all: a script may update by its own means.
        self._seen = False
        #: True if the state is complete, and True if it has ever trained.
        self._whole, self._fresh = True, True
        self._step = SessionStep(self)
        self._member = guests.member(lambda: self.steps, self._device)
        if self._member is None:
            self._begin_alone()
        else:
            self._begin(self._member)

    @property
    def elastic(self) -> bool:
        """True if worlds can change without ending this process."""
        return self._member is not None

    @property
    def epoch(self) -> int:
        """Return the number of complete passes over the data."""
        return self._epoch if self.sampler is None else int(self.sampler.epoch)

    def step(self) -> SessionStep:
        """Run one optimizer step, or with accumulation one micro-batch of it: ``with
        session.step()``.

        If the block raises an error because a peer is gone, the error is swallowed once this
        process is in the next world. The step then does not count and must be repeated, even if the
        block swallowed the error itself. A process that leaves the job raises SystemExit here. The
        world changes when a step begins, so code after the block still runs in the world of the
        step.
        """
        return self._step

    def batches(self, loader: Iterable[B]) -> Iterator[B]:
        """Yield the remaining batches of this epoch, from the sampler if there is one. Without a
        sampler, yield the batches of ``loader``, and repeat a batch whose step failed.
        """
        if self.sampler is not None:
            yield from self._dealt(loader)
            return
        for batch in loader:
            while True:
                steps, self._failures = self.steps, 0
                yield batch
                if not self._failures or self.steps > steps:
                    break

    def _dealt(self, loader: Iterable[B]) -> Iterator[B]:
        """Yield the batches that the sampler deals out for the world of each step."""
        epoch, dealt, self._deals = self.epoch, self.sampler.over(loader), True
        try:
            while True:
                # After the last batch the script may have more to do for this epoch.
                if self._part.last and self.epoch == epoch:
                    self._settle()
                found = next(dealt, None)
                if found is None:
                    return
                batch, self._part = found
                yield batch
        finally:
            self._part, self._deals = WHOLE, False

    def epochs(self, count: int) -> Iterator[int]:
        """Yield epoch numbers from the job's current epoch up to ``count`` (exclusive)."""
        while (epoch := self.epoch) < count:
            yield epoch
            self._epoch = max(self._epoch, epoch + 1)

    # --- worlds -----------------------------------------------------------------------------

    #: Steps that failed since ``batches`` gave the present batch.
    _failures = 0

    @property
    def _device(self) -> torch.device:
        """Device on which the network's gradients are exchanged."""
        cards = (each.device for each in self.module.parameters() if each.is_cuda)
        return next(cards, torch.device("cpu"))

    @property
    def _cuda(self) -> bool:
        return bool(self._device.type == "cuda")

    def _begin_alone(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if self._cuda else "gloo")
        if dist.is_initialized():
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
            self.model = DistributedDataParallel(self.module, **self._parallel)
        if self.sampler is not None:
            self.sampler.reshard(self.rank, self.size)

    def _begin(self, member: SessionMember) -> None:
        for optimizer in self.optimizers:
            if self._cuda:
                optimizer.register_step_pre_hook(self._arrived)
            optimizer.register_step_pre_hook(self._makes)
            optimizer.register_step_post_hook(self._made)
        self._whole = not guests.joining()
        for optimizer in self.optimizers if guests.joining() else ():
            # What its first call imports and compiles, nobody shall wait for.
            optimizer.load_state_dict(optimizer.state_dict())
        member.open()
        member.begun()
        self._move(member)

    def _makes(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._applies = True

    def _made(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._applied, self._applies, self._seen = self._applied + 1, False, True

    def _arrived(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Keep optimizers from using the gradients of a failed NCCL exchange, whose failure only
        the device sees.
        """
        torch.cuda.current_stream(self._device).synchronize()
        if self._member is not None and self._member.ended:
            raise RuntimeError("NCCL: the group was aborted, so its gradients are not complete")

    def _count(self) -> None:
        self.steps += 1
        self._applied, self._fresh = 0, False
        if self.sampler is not None:
            self.sampler.step()

    def _settle(self) -> None:
        """Change the world between two steps if that is due."""
        member = self._member
        if member is not None and member.watched:
            self._applied = 0
            self._follow(member, member.due())

    def _follow(self, member: SessionMember, due: Due) -> None:
        match due:
            case Due.MOVE:
                self._move(member)
            case Due.PART:
                member.part()
                raise SystemExit(0)

    @property
    def _hollow(self) -> bool:
        """True if a step ends without an error and without an optimizer step, because the script
        swallowed the loss of a peer.
        """
        member = self._member
        unmade = self._part.last and self._seen and self._applied == 0
        return member is not None and unmade and member.bereft

    def _recover(self, error: BaseException) -> bool:
        """True if a step failed because a peer ended, and this process is in the next world."""
        member = self._member
        if member is None or not isinstance(error, RuntimeError):
            return False
        if not (of_communication(error) or member.ended):
            return False
        self._whole = self._whole and not self._applies
        self._failures += 1
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self._held.restart_scalers()
        member.broken(str(error))
        try:
            due = member.relieved()
        except TimeoutError as late:
            say(f"the session ends: {late}")
            return False
        self._follow(member, due)
        return True

    def _move(self, member: SessionMember) -> None:
        """Enter the present world, or a later one if its members cannot be reached."""
        plan, group = member.present
        try:
            self._enter(plan, group)
        except RuntimeError as error:
            if not (of_communication(error) or member.ended):
                raise
            member.broken(str(error))
            self._follow(member, member.relieved())
            return
        member.moved(self.steps)

    def _enter(self, plan: Plan, group: SessionGroup) -> None:
        if plan.now:
            mine = (self.steps, self._applied) if self._whole else carrying.NOTHING
            said = group.gather([*mine, self._fresh])
            givers = carrying.givers([(steps, applied) for steps, applied, _ in said])
            fresh = all(fresh for _, _, fresh in said)
        else:  # who stays is at the step that all agreed to: nobody has to be asked, or waited for
            newcomers = set(plan.newcomers)
            places = [carrying.NOTHING if r in newcomers else (0, 0) for r in range(plan.size)]
            givers, fresh = carrying.givers(places), False
        with torch.no_grad():
            for rank, giver in sorted(givers.items()):
                if plan.rank == giver:
                    carrying.give(group, rank, self._held, self._loop())
                elif plan.rank == rank:
                    self._take(group, giver)
        self.rank, self.size, self.world = plan.rank, plan.size, plan.epoch
        os.environ.update(plan.environment)
        guests.moved(plan)
        self._wrap(group, init_sync=fresh)
        if self.sampler is not None:
            self.sampler.reshard(self.rank, self.size)
        if 0 < len(self.optimizers) <= self._applied:
            self._count()  # all have made it; what failed came after
        self._applied = 0  # else all make it again

    def _loop(self) -> dict[str, int]:
        """Return the loop's state that newcomers need, beside the objects that the script named."""
        return {
            "steps": self.steps,
            "applied": self._applied,
            "epoch": self._epoch,
            "counted": guests.counted(),
        }

    def _take(self, group: SessionGroup, giver: int) -> None:
        self._whole = False
        loop = carrying.take(group, giver, self._held)
        self.steps, self._applied, self._epoch = loop["steps"], loop["applied"], loop["epoch"]
        guests.count(loop["counted"])
        self._whole, self._fresh, self._applies = True, False, False

    def _wrap(self, group: SessionGroup, *, init_sync: bool) -> None:
        old = self.model
        if isinstance(old, DistributedDataParallel):
            # Its hooks in the parameters go with it, and with nothing else that may hold on to it.
            old.reducer = old.logger = None
        self.model = DistributedDataParallel(
            self.module, process_group=group.group, init_sync=init_sync, **self._parallel
        )


class SessionStep:
    """The object that ``with session.step()`` enters; one object for all steps of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._quiet: Any = None

    def __enter__(self) -> StatePart:
        session, part = self._session, self._session._part
        # A batch that the sampler dealt out is of the present world, whatever comes now.
        if not session._deals:
            session._settle()
        session._applied, session._applies = 0, False
        if not part.last and isinstance(session.model, DistributedDataParallel):
            self._quiet = session.model.no_sync()
            self._quiet.__enter__()
        return part

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        session = self._session
        if self._quiet is not None:
            quiet, self._quiet = self._quiet, None
            quiet.__exit__(kind, error, trace)
        if error is not None:
            return session._recover(error)
        if session._hollow:
            lost = RuntimeError("Connection closed by peer: the script continued without its peers")
            if not session._recover(lost):
                raise lost
        elif session._part.last:
            session._count()
        return False
