"""A process's part in changes of its job's world: it receives messages, and builds the next process
group.

A thread receives messages, and other threads build process groups. The script's thread checks at
the end of a step if there is something to do, and only then waits.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from launcher.elastic.changing import Coming, Due, Plan, step_to_change_at
from launcher.elastic.groups import RetiredGroups, SessionGroup, build
from launcher.elastic.line import Line
from launcher.elastic.store import RendezvousStore

#: Seconds that members who train may take to meet in another world; then agents are told so.
BUILD_SECONDS = 60.0
#: The same where somebody comes whose script has still to get to ``join``, as torch has it.
JOIN_SECONDS = 1800.0
#: Seconds after which a process that waits for its agent's word gives up; the launcher ends it
#: long before, unless it is the launcher that fails.
PATIENCE_SECONDS = 300.0
#: Seconds in which all hear of the step that they change after; doubled each time that some did
#: not, so often at most.
_TOLD_SECONDS, _DOUBLED = 0.02, 8
#: Seconds that one that leaves waits until all others have left its last world behind.
_PARTING_SECONDS = 30.0


class SessionMember:
    """A worker's membership in the worlds of its job; steps call it only if ``watched`` is true."""

    def __init__(
        self, path: str, local_rank: int, *, device: torch.device, steps: Callable[[], int]
    ) -> None:
        """``steps`` returns the number of complete steps.

        Raises:
            OSError: no agent listens at ``path``.
        """
        self._local_rank, self._device, self._steps = local_rank, device, steps
        #: Tested at every step; all else is asked only where it is true.
        self.watched = False
        #: Epoch of the present world, and its group; 0 before the first.
        self.world = 0
        self.group: SessionGroup | None = None
        self._plan: Plan | None = None
        self._coming = Coming()
        self._next: SessionGroup | None = None
        self._stores: dict[int, RendezvousStore] = {}
        self._began = 0, 0.0
        #: How often a step was asked for since: each time some had made it before they were told.
        self._asked = 0
        self._may_go = False
        self._changed = threading.Condition()
        self._keeping = RetiredGroups()
        self._line = Line(path, self._hear)

    @property
    def ended(self) -> bool:
        """True if the present world's group has ended, so that its exchanges fail."""
        return self.group is not None and self.group.ended

    @property
    def bereft(self) -> bool:
        """True if exchanges of the present world failed, even if the script swallowed the error."""
        return self.group is not None and self.group.broken

    def open(self) -> None:
        """Introduce this worker to its agent, which answers with the world to join."""
        self._line.open()
        self._line.say("hello", local_rank=self._local_rank)

    # --- for the script's thread ------------------------------------------------------------

    def due(self) -> Due:
        """Return what the worker does after a step; if needed, wait until a change is decided or
        the next world's process group is built. ``Due.MOVE`` makes the next world the present one.

        Raises:
            TimeoutError: the agent does not answer.
        """
        return self._wait(lambda: self._coming.due(self._steps()))

    def begun(self) -> None:
        """Wait until this process's first world has formed."""
        self._wait(lambda: Due.MOVE if self._coming.certain else Due.WAIT, JOIN_SECONDS)

    def relieved(self) -> Due:
        """Return what the worker does after a failed step; wait for a world without the lost
        members.
        """
        return self._wait(lambda: self._coming.relief())

    @property
    def present(self) -> tuple[Plan, SessionGroup]:
        """The plan and the process group of the present world, which ``Due.MOVE`` has begun."""
        assert self._plan is not None
        assert self.group is not None
        return self._plan, self.group

    def moved(self, steps: int) -> None:
        """Report that this process is in the present world, with its state."""
        self._line.say("moved", epoch=self.world, step=steps)

    def broken(self, why: str) -> None:
        """Report that peers of the present world cannot be reached."""
        self._line.say("broken", epoch=self.world, why=why[:500])

    def failing(self) -> None:
        """Report that the script has failed, before the process ends."""
        self._line.say("failing", epoch=self.world)

    def part(self) -> None:
        """Leave the job; return once no other member needs this process."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_go, _PARTING_SECONDS)

    def _wait(self, look: Callable[[], Due], seconds: float = PATIENCE_SECONDS) -> Due:
        with self._changed:
            until = time.monotonic() + seconds
            while (due := look()) is Due.WAIT:
                if not self._changed.wait(until - time.monotonic()):
                    raise TimeoutError(f"no next world formed within {seconds:.0f} s")
            if due is Due.MOVE:
                self._move()
            return due

    def _move(self) -> None:
        """Make the next world the present one, before a newer plan can replace it."""
        plan, group = self._coming.plan, self._next
        assert plan is not None
        assert group is not None
        if self.group is not None:
            self._keeping.keep(self.group)
        self._stores = {e: store for e, store in self._stores.items() if e > plan.epoch}
        self.world, self._plan, self.group, self._next = plan.epoch, plan, group, None
        self._come(Coming())

    # --- for the thread that hears ----------------------------------------------------------

    def _hear(self, message: dict[str, Any]) -> None:
        getattr(self, f"_do_{message.pop('do')}")(**message)

    def _do_build(self, plan: dict[str, Any]) -> None:
        plan_ = Plan(**{**plan, "newcomers": tuple(plan.get("newcomers", ()))})
        with self._changed:
            coming = self._coming.planned(plan_, self.world)
            if coming is self._coming:
                return
            self._forget()
            self._began, self._asked = (self._steps(), time.monotonic()), 0
            self._come(coming)
            current = self.group
        if plan_.now and current is not None:
            current.end()
        if plan_.parting:
            self._line.say("ready", epoch=plan_.epoch)
        else:
            threading.Thread(target=self._build, args=(plan_,), daemon=True).start()

    def _do_at(self, epoch: int) -> None:
        steps, (before, at) = self._steps(), self._began
        seconds = (time.monotonic() - at) / (steps - before) if steps > before else 0.0
        told_seconds = _TOLD_SECONDS * 2 ** min(self._asked, _DOUBLED)
        self._asked += 1
        self._line.say("at", epoch=epoch, step=step_to_change_at(steps, seconds, told_seconds))

    def _do_propose(self, epoch: int, step: int) -> None:
        with self._changed:
            self._come(self._coming.agreed(epoch, step))
            # Asked after it is watched for: whoever gets there later finds it.
            ok = self._coming.at == step and self._steps() < step
            if not ok and self._coming.about(epoch):
                self._come(replace(self._coming, at=None))
        self._line.say("agreed", epoch=epoch, step=step, ok=ok)

    def _do_commit(self, epoch: int) -> None:
        with self._changed:
            self._come(self._coming.decided(epoch))

    def _do_discard(self, epoch: int) -> None:
        with self._changed:
            coming = self._coming.dropped(epoch)
            if coming is not self._coming:
                self._forget()
                self._come(coming)

    def _do_posted(self, epoch: int, key: str, value: str) -> None:
        self._store(epoch).posted(key, base64.b64decode(value))

    def _do_go(self) -> None:
        with self._changed:
            self._may_go = True
            self._changed.notify_all()

    def _come(self, coming: Coming) -> None:
        # A world that comes now, or was agreed to, is asked for from here on.
        self._coming, self.watched = coming, coming.watched
        self._changed.notify_all()

    def _forget(self) -> None:
        """Drop the world that was being built."""
        plan = self._coming.plan
        if plan is not None and plan.epoch in self._stores:
            self._stores[plan.epoch].cancel()
        if self._next is not None:
            self._next.end()
            self._keeping.keep(self._next)
            self._next = None

    # --- for threads that build -------------------------------------------------------------

    def _build(self, plan: Plan) -> None:
        store = self._store(plan.epoch)
        if plan.now and self.world:
            store.patience_seconds = BUILD_SECONDS
        try:
            group = build(store, plan.rank, plan.size, host=plan.host, device=self._device)
        except Exception as failed:  # noqa: BLE001 - whatever it is, the agent has to know of it
            if self._coming.about(plan.epoch):
                self._line.say("failed", epoch=plan.epoch, why=str(failed)[:500])
            return
        self._keeping.hold(group)
        with self._changed:
            if not self._coming.about(plan.epoch):
                self._keeping.keep(group)
                return
            self._next = group
            self._come(self._coming.ready(plan.epoch))
        self._line.say("ready", epoch=plan.epoch)

    def _store(self, epoch: int) -> RendezvousStore:
        with self._changed:
            if epoch not in self._stores:
                self._stores[epoch] = RendezvousStore(
                    lambda key, value: self._line.say(
                        "post", epoch=epoch, key=key, value=base64.b64encode(value).decode()
                    ),
                    JOIN_SECONDS,
                )
            return self._stores[epoch]
