"""The agent's part in changes of the world that end no process: it relays messages."""

import asyncio
import base64
import time
from collections import defaultdict
from collections.abc import Callable

from launcher import messages
from launcher.values.config import WorldDocument
from launcher.workers.environment import world_environment, world_place
from launcher.workers.processes.sessions import SessionMessage
from launcher.workers.workers import Workers

#: Seconds that workers which have failed may take to say why and end.
FAILING_SECONDS = 5.0
#: Seconds between looks at them.
_LOOK_SECONDS = 0.005


class InProcessChanges:
    """The next world that one agent's workers build in process, and their messages about it."""

    def __init__(
        self, host: str, replica: Callable[[], int], tell: Callable[[messages.Message], None]
    ) -> None:
        """``host`` is where peers reach this machine; ``replica`` returns this agent's id."""
        self._host, self._replica, self._tell = host, replica, tell
        #: The world that is being built beside the training world; None if there is none.
        self.coming: WorldDocument | None = None
        #: Replicas of that world that have the state already.
        self.stay: frozenset[int] = frozenset()
        #: True if the workers here leave at the next change, and end by themselves.
        self.parting = False
        #: Count of workers that reported a failure, and may not have ended yet.
        self.failing = 0
        #: The workers that said hello last; some of them may still be starting.
        self._introduced: Workers | None = None
        #: Epoch -> values that members of that world sent each other.
        self._posts: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
        #: Messages of workers here, for a coordinator that may not have heard them.
        self._own: list[messages.Post] = []

    def heard(self, workers: Workers, what: str, message: SessionMessage) -> None:
        """Handle a message from one worker, or from all workers together."""
        match what:
            case "hello":
                self._introduce(workers, int(message["local_rank"]))
            case "post":
                value = base64.b64decode(message["value"])
                post = messages.Post(epoch=message["epoch"], key=message["key"], value=value)
                self._own.append(post)
                self._tell(post)
            case "at":
                self._tell(messages.Appointed(epoch=message["epoch"], step=message["step"]))
            case "agreed":
                answer = {key: message[key] for key in ("epoch", "step", "ok")}
                self._tell(messages.Agreed(**answer))
            case "failing":
                self.failing += 1
                self._tell(messages.Failing(epoch=message["epoch"]))
            case "ready" if self._awaits(message):
                self._tell(messages.Prepared(epoch=message["epoch"], ok=True))
            case "failed" if self._awaits(message):
                why = str(message["why"])
                self._tell(messages.Prepared(epoch=message["epoch"], ok=False, reason=why))
            case "failed" | "broken":
                reason, unbuilt = str(message["why"]), what == "failed"
                self._tell(messages.Torn(epoch=message["epoch"], reason=reason, unbuilt=unbuilt))

    def begin(self, workers: Workers, world: WorldDocument, *, now: bool) -> None:
        """Let workers build a world while they train; set ``now`` if the present world is over."""
        for local_rank in workers.sessions.here if workers.sessions is not None else ():
            self._plan(workers, local_rank, world, now=now)

    def unbuild(self, workers: Workers | None, epoch: int) -> None:
        """Discard the world that is being built if its epoch is ``epoch``, or if ``epoch`` is 0."""
        coming = self.coming
        if coming is None or epoch not in (0, coming.epoch):
            return
        self.coming = None
        if workers is not None and workers.sessions is not None:
            workers.sessions.tell("discard", epoch=coming.epoch)

    def asked(
        self,
        asked: messages.Appoint | messages.Agree | messages.Post,
        workers: Workers | None,
        newcomers: Workers | None,
    ) -> None:
        """Forward to the workers the coordinator's message about a world that is being built."""
        sessions = None if workers is None else workers.sessions
        match asked:
            case messages.Post():
                self._posted(asked)
            case messages.Appoint(epoch=epoch) if sessions is not None:
                sessions.tell_one(0, "at", epoch=epoch)
            case messages.Agree(epoch=epoch, step=step) if sessions is not None:
                sessions.tell("propose", epoch=epoch, step=step)
            case messages.Agree(epoch=epoch, step=step):  # newcomers make no step before
                self._tell(messages.Agreed(epoch=epoch, step=step, ok=newcomers is not None))

    async def let_end(self, workers: Workers, grace_seconds: float) -> float:
        """Give workers that end by themselves time to do so; return the rest of their grace period
        in seconds. Such workers leave (and may save first), or they have failed and report the
        reason.
        """
        count = len(workers.pids) if self.parting else self.failing
        if self.parting and workers.sessions is not None:
            workers.sessions.tell("go")
        began = time.monotonic()
        until = began + (grace_seconds if self.parting else FAILING_SECONDS)
        while len(workers.exits) < count and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        left = began + grace_seconds - time.monotonic() if self.parting else grace_seconds
        self.parting, self.failing = False, 0
        return max(0.0, left)

    def _posted(self, post: messages.Post) -> None:
        """Pass on another member's message; workers that say hello later hear it then."""
        self._posts[post.epoch][post.key] = post.value
        if self._introduced is not None and self._introduced.sessions is not None:
            said = _said(post.epoch, post.key, post.value)
            self._introduced.sessions.tell("posted", **said)

    def tell_again(self) -> None:
        """Repeat to a new coordinator the messages for which members may be waiting."""
        for post in self._own:
            self._tell(post)

    def over(self, epoch: int) -> None:
        """Forget messages of earlier worlds."""
        for known in [each for each in self._posts if each < epoch]:
            del self._posts[known]
        self._own = [post for post in self._own if post.epoch >= epoch]

    def _newcomers(self, world: WorldDocument) -> list[int]:
        """Return the ranks that receive the state."""
        firsts = [(world.first_rank(m.group_rank), m) for m in world.members]
        return [
            first + local_rank
            for first, member in firsts
            if member.replica not in self.stay
            for local_rank in range(member.processes)
        ]

    def _awaits(self, message: SessionMessage) -> bool:
        return self.coming is not None and message["epoch"] == self.coming.epoch

    def _introduce(self, workers: Workers, local_rank: int) -> None:
        """Have a new worker build the world that it was started for."""
        self._introduced = workers
        self._plan(workers, local_rank, workers.world, now=not workers.joining)
        if workers.elastic and not workers.joining:
            self._tell(messages.Elastic(epoch=workers.world.epoch))

    def _plan(self, workers: Workers, local_rank: int, world: WorldDocument, *, now: bool) -> None:
        sessions = workers.sessions
        assert sessions is not None
        group_rank = rank_in(world, self._replica())
        plan: dict[str, object] = {
            "epoch": world.epoch,
            "rank": 0,
            "size": world.processes,
            "now": now,
        }
        if group_rank is None:
            plan["parting"] = True
        else:
            plan["rank"] = world.first_rank(group_rank) + local_rank
            plan["host"] = self._host
            plan["newcomers"] = [] if now else self._newcomers(world)
            plan["environment"] = world_environment(world, group_rank, local_rank)
            plan["place"] = world_place(world)
        sessions.tell_one(local_rank, "build", plan=plan)
        for key, value in self._posts[world.epoch].items():
            sessions.tell_one(local_rank, "posted", **_said(world.epoch, key, value))


def rank_in(world: WorldDocument, replica: int) -> int | None:
    """Return the GROUP_RANK of a replica; None if it is not a member."""
    return next((m.group_rank for m in world.members if m.replica == replica), None)


def _said(epoch: int, key: str, value: bytes) -> dict[str, object]:
    return {"epoch": epoch, "key": key, "value": base64.b64encode(value).decode()}
