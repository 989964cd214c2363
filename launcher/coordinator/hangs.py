"""Examines a quiet world from time to time, requests stack dumps from its agents, and reports the
finding.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from brain.types.diagnosis import Attachment, Diagnosis
from brain.types.explanation import Evidence
from brain.types.world import WorldEvent
from launcher import messages
from launcher.coordinator import slow_nodes
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.diagnosis.first import hung
from launcher.values.hang import inspection, rules
from launcher.values.hang.terms import HangTerms
from launcher.values.observation import WorldPhase
from launcher.values.workers import Doing, Progress

#: Exit code of a job whose worlds stand still too often, as of ``timeout``.
HANG_EXIT = 124
#: Seconds between an agent's two looks, and that its answer may take beyond.
_APART_SECONDS, _ANSWER_SECONDS = 3.0, 20.0
#: Seconds between looks at a world for each rank, since a look costs O(ranks).
_SECONDS_PER_RANK = 1e-3
#: Number of ranks whose stacks go with a finding, ranks to blame first.
_ATTACHED, _CHARACTERS = 8, 8000


class HangWatch:
    """One coordinator's search for hangs; ``watch`` runs until cancelled."""

    def __init__(
        self,
        terms: HangTerms | None,
        it: CoordinatorState,
        changed: Callable[[], None],
        *,
        held: Callable[[], bool] = lambda: False,
        apart_seconds: float = _APART_SECONDS,
    ) -> None:
        """``held``: True while workers are held until it is proved that nobody succeeded them."""
        self._terms, self._it, self._changed, self._held = terms, it, changed, held
        self._apart_seconds = apart_seconds
        self._epoch = 0
        self._pace = rules.begin(0.0)
        self._slowness = slow_nodes.Slowness()
        #: Not before then is a world that was only busy looked at again.
        self._not_before = 0.0
        self._asked: set[int] = set()
        self._looks: list[inspection.StackLook] = []
        self._answered = asyncio.Event()

    async def watch(self) -> None:
        """Search for hangs until cancelled."""
        if self._terms is None:
            await asyncio.Event().wait()
            return
        while True:
            pause, began = self._pause(self._terms), self._it.clock()
            await asyncio.sleep(pause)
            now = self._it.clock()
            # Time in which this process was stopped, and workers mostly with it, is none of theirs.
            stopped = now - began - pause > self._it.terms.lease_seconds
            unseen = now - began if stopped or self._held() else 0.0
            self._pace = rules.without(self._pace, unseen, now)
            await self._look(self._terms)

    def heard(self, replica: int, message: "messages.Looked") -> None:
        """Store an agent's stack dumps."""
        if message.epoch == self._epoch and replica in self._asked:
            self._asked.discard(replica)
            self._looks.extend(message.looks)
            self._answered.set()

    def left(self, replica: int) -> None:
        """Stop waiting for an agent that is gone."""
        self._asked.discard(replica)
        self._answered.set()

    def _pause(self, terms: HangTerms) -> float:
        monitor = self._it.monitor
        processes = 0 if monitor is None else monitor.processes
        often = min(1.0, max(0.05, terms.patience.seconds / 10))
        return max(often, _SECONDS_PER_RANK * processes)

    async def _look(self, terms: HangTerms) -> None:
        monitor, now = self._it.monitor, self._it.clock()
        if monitor is None or monitor.phase is not WorldPhase.RUNNING or not monitor.formed:
            return
        if monitor.document.epoch != self._epoch:
            self._epoch = monitor.document.epoch
            self._pace = rules.begin(now, self._it.journal.ledger.shown, self._it.terms.program)
            self._slowness, self._not_before = slow_nodes.Slowness(), 0.0
        ranks = seen(monitor)
        moved_at = self._pace.moved_at
        self._pace = rules.paced(self._pace, ranks, now)
        if self._pace.moved_at > moved_at:
            monitor.hung = None
            self._remember()
        if terms.leave_slow:
            self._leave_slow(terms, monitor, now)
        quiet = rules.quiet(self._pace, ranks, now, terms.patience)
        # A rank that has ended well may be waited for by nobody: the others' end is at hand.
        if quiet is None or not quiet.due or monitor.hung is not None or now < self._not_before:
            return
        looks = await self._closer(monitor)
        if monitor is not self._it.monitor or monitor.phase is not WorldPhase.RUNNING:
            return
        busy = inspection.may_be_busy(looks, (each.rank for each in seen(monitor)))
        if not quiet.too_long(busy=busy, waiting=inspection.some_wait(looks)):
            self._not_before = self._it.clock() + max(quiet.budget_seconds, quiet.seconds) / 2
            return
        self._found(terms, monitor, quiet, looks)

    def _remember(self) -> None:
        """Keep for the next worlds how long the script was quiet and then went on."""
        shown = rules.shows(self._pace, self._it.terms.program)
        if rules.news(self._it.journal.ledger.shown, shown):
            self._it.journal.note(durable=False, shown=shown)

    async def _closer(self, monitor: WorldMonitor) -> Sequence[inspection.StackLook]:
        """Have all agents dump stacks; an agent that answers too late has no dump."""
        self._looks, self._asked = [], {peer.replica for peer in self._it.members}
        order = messages.encoded(messages.Look(epoch=self._epoch, seconds=self._apart_seconds))
        for peer in self._it.members:
            peer.connection.send(order)
        try:
            async with asyncio.timeout(self._apart_seconds + _ANSWER_SECONDS):
                while self._asked:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            pass
        return sorted(self._looks, key=lambda look: look.rank)

    def _found(
        self,
        terms: HangTerms,
        monitor: WorldMonitor,
        quiet: rules.Quiet,
        looks: Sequence[inspection.StackLook],
    ) -> None:
        steps = monitor.past.steps
        step = self._it.journal.ledger.begun + steps if steps else None
        found = finding(quiet, looks, monitor, step)
        # A script without an observed step may never make one.
        restart = terms.restart and self._pace.steps > 0
        what = "the world ends, and a new one forms" if restart else "the world continues unchanged"
        found = replace(found, next_step=what)
        monitor.stands_still(found, HANG_EXIT if restart else None)
        self._it.journal.tell(
            WorldEvent.HUNG, monitor, detail=f"{found.sentence}; {what}", diagnosis=found
        )
        terms.tell(f"{found.sentence}; {what}")
        for waits in found.evidence:
            terms.tell(f"{waits.label}: {waits.value}")
        for each in found.attachments:
            terms.tell(f"{each.name}\n{each.text.rstrip()}")
        self._changed()

    def _leave_slow(self, terms: HangTerms, monitor: WorldMonitor, now: float) -> None:
        """Have a replica leave at the next safe point if the others are faster without it."""
        nodes = {m.replica: m.node for m in monitor.document.members}
        progress = [
            (each, member.replica, nodes[member.replica])
            for each, _ in monitor.progress
            if (member := monitor.member_of(each.rank)) is not None
        ]
        found = self._slowness.look(progress, now, terms.ratio)
        if found is None or not monitor.stepping:
            return
        why = slow_nodes.worth(found, self._it, monitor, now)
        peer = self._it.peers.get(found.replica)
        if why and peer is not None and peer.leaving_since is None:
            terms.tell(why)
            peer.leaving_since, peer.unfit = now, why
            self._changed()


def seen(monitor: WorldMonitor) -> list[rules.RankObserved]:
    """Return the progress, from heartbeats, of each worker that has not ended."""
    ended = {exit.rank for exit in monitor.exits}
    return [_rank(each, offset) for each, offset in monitor.progress if each.rank not in ended]


def finding(
    quiet: rules.Quiet,
    looks: Sequence[inspection.StackLook],
    monitor: WorldMonitor,
    step: int | None,
) -> Diagnosis:
    """Build the finding about a world that makes no progress."""
    by_rank: Mapping[int, inspection.StackLook] = {look.rank: look for look in looks}
    blamed = inspection.culprits(looks, quiet.suspects)
    rank = blamed[0] if blamed else None
    member = None if rank is None else monitor.member_of(rank)
    where = "" if rank is None else inspection.place(by_rank.get(rank))
    who = "no rank stands out" if member is None else f"rank {rank} on {member.node} stopped first"
    sentence = (
        f"no worker has made progress for {quiet.seconds:.0f} s in {quiet.phase}; "
        f"{who}{f', in {where}' if where else ''}"
    )
    evidence = [
        Evidence(label="quiet", value=f"{quiet.seconds:.1f} s of {quiet.budget_seconds:.1f} s"),
        Evidence(label="in the middle of", value=str(quiet.phase)),
    ]
    if len(blamed) > 1:
        evidence.append(Evidence(label="ranks that stopped first", value=_listed(blamed)))
    evidence += [
        Evidence(
            label=f"rank {each.rank}",
            value=f"state {each.state or '?'}{f' ({each.kernel})' if each.kernel else ''}, "
            f"{each.cpu_share:.2f} processors, "
            f"{each.bytes_per_second / 1e6:.1f} MB/s; {inspection.place(each) or each.means}"
            + (f"; {last}" if (last := inspection.collective(each.recorder)) else ""),
        )
        for each in looks[:_ATTACHED]
    ]
    return hung(
        sentence,
        evidence=evidence,
        attachments=_attachments(looks, blamed),
        rank=rank,
        replica=None if member is None else member.replica,
        node=None if member is None else member.node,
        step=step,
    )


def _attachments(looks: Sequence[inspection.StackLook], blamed: Sequence[int]) -> list[Attachment]:
    ordered = sorted(looks, key=lambda look: (look.rank not in blamed, look.rank))[:_ATTACHED]
    found = [
        Attachment(name=f"stacks of rank {each.rank} ({each.means})", text=text)
        for each in ordered
        if (text := each.stacks[:_CHARACTERS])
    ]
    found += [
        Attachment(name=f"flight recorder of rank {each.rank}", text=each.recorder[:_CHARACTERS])
        for each in ordered
        if each.recorder
    ]
    return found


def _rank(each: Progress, offset: float) -> rules.RankObserved:
    return rules.RankObserved(
        rank=each.rank,
        steps=each.steps,
        step_at=each.last_step_ns / 1e9 + offset if each.last_step_ns else None,
        life_at=each.life_ns / 1e9 + offset if each.life_ns else None,
        saving=each.doing is Doing.SAVING,
        evaluating=each.doing is Doing.EVALUATING,
        parked=each.parked,
    )


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:16])) + (" …" if len(ranks) > 16 else "")
