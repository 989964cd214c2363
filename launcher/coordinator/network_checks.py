"""The coordinator's side of ``--network-check``: it runs a few rounds, and then names the nodes to
leave out, with reasons.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from brain.types.world import Member, ReplicaExit
from launcher import messages
from launcher.coordinator.world.peers import Peers
from launcher.values.network_check.measurements import CheckRound, Group, NodeMeasured, Usual
from launcher.values.network_check.pairing import first_round, next_round
from launcher.values.network_check.terms import CheckTerms, CheckWork
from launcher.values.network_check.verdicts import Verdicts, remembered, spared, verdicts

#: Seconds that a verdict may come later than the script was given.
_SLACK_SECONDS = 5.0


class NetworkChecks:
    """The check before one coordinator's first world; nodes that passed are not checked again."""

    def __init__(self, terms: CheckTerms | None, peers: Peers) -> None:
        self._terms, self._peers = terms, peers
        self._passed = terms is None
        self._round = 0
        self._measured: dict[int, NodeMeasured] = {}
        self._asked: frozenset[int] = frozenset()
        self._heard = asyncio.Event()

    @property
    def due(self) -> bool:
        """True if nodes must be checked before a world is formed."""
        return not self._passed

    def skip(self) -> None:
        """Skip the check, because a world has already run: its nodes are known and busy."""
        self._passed = True

    def heard(self, replica: int, message: messages.Checked) -> None:
        """Store an agent's measurement."""
        if message.round == self._round and replica in self._asked:
            self._measured[replica] = message.measured
            self._heard.set()

    def left(self, replica: int) -> None:
        """Stop waiting for an agent that is gone."""
        if replica in self._asked and replica not in self._measured:
            self._measured[replica] = NodeMeasured(ok=False, reason="the node's agent disconnected")
            self._heard.set()

    async def run(self, members: Sequence[Member], *, unit: int, minimum: int) -> None:
        """Check the nodes, and release those that are left out."""
        terms = self._terms
        assert terms is not None
        hosts = {each.replica: each.address.rpartition(":")[0] for each in members}
        nodes = {each.replica: str(each.node) for each in members}
        known = _recall(terms.memory)
        usual = _of_work(known, terms.work)
        rounds = [await self._try(first_round(list(hosts)), hosts)]
        while again := next_round(rounds, usual, terms.ratio):
            rounds.append(await self._try(again, hosts))
        found = verdicts(rounds, usual, terms.ratio)
        now = remembered(rounds, usual).items()
        _remember(terms.memory, {**known, **{_name(k, terms.work): each for k, each in now}})
        self._passed = True
        if terms.print_all:
            self._print(rounds, nodes)
        self._leave_out(found, nodes, unit=unit, minimum=minimum)

    async def _try(self, groups: tuple[Group, ...], hosts: Mapping[int, str]) -> CheckRound:
        """Run one round; an agent that does not answer has no measurement."""
        terms = self._terms
        assert terms is not None
        self._round += 1
        self._measured = {}
        self._asked = frozenset(replica for group in groups for replica in group)
        for group in groups:
            first = self._peers.get(group[0])
            for rank, replica in enumerate(group):
                peer = self._peers.get(replica)
                if peer is None or first is None:
                    self.left(replica)
                    continue
                asked = messages.Check(
                    round=self._round,
                    rank=rank,
                    size=len(group),
                    host=hosts[group[0]].strip("[]"),
                    port=first.port,
                    seconds=terms.seconds,
                    work=terms.work,
                )
                peer.connection.send(asked)
        try:
            async with asyncio.timeout(terms.seconds + _SLACK_SECONDS):
                while self._measured.keys() < self._asked:
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            pass
        return CheckRound(groups=groups, measured=dict(self._measured))

    def _leave_out(
        self, found: Verdicts, nodes: Mapping[int, str], *, unit: int, minimum: int
    ) -> None:
        terms = self._terms
        assert terms is not None
        fine = [replica for replica in nodes if replica not in found.failed]
        slow = spared(found.slow, fine, unit=unit, minimum=minimum, times=found.times)
        if not terms.exclude_stragglers:
            slow = ()
        for replica, why in {**found.failed, **found.slow}.items():
            out = replica in found.failed or replica in slow
            what = "failed the check" if replica in found.failed else "is slow"
            then = "is left out" if out else "takes part"
            terms.tell(f"node {nodes[replica]} (replica {replica}) {what} and {then}: {why}")
            if out:
                detail = f"this node {what} before training and is left out: {why}"
                self._peers.release(
                    replica,
                    messages.Bye(exit=ReplicaExit.FAILED, exit_code=1, detail=detail, unfit=detail),
                )

    def _print(self, rounds: Sequence[CheckRound], nodes: Mapping[int, str]) -> None:
        terms = self._terms
        assert terms is not None
        for number, each in enumerate(rounds, start=1):
            for replica, seen in sorted(each.measured.items()):
                told = (
                    f"arithmetic {seen.compute_seconds:.4f} s, {terms.work.mebibytes} MiB "
                    f"all-reduced in {seen.exchange_seconds:.4f} s"
                    if seen.ok
                    else seen.reason
                )
                terms.tell(f"check {number}: node {nodes[replica]} (replica {replica}): {told}")


def _name(kind: str, work: CheckWork) -> str:
    """Return the key of remembered times: the kind of device and, unless it is the default, the
    work.
    """
    return kind if work == CheckWork() else f"{kind} {work.edge}/{work.mebibytes}"


def _of_work(known: Mapping[str, Usual], work: CheckWork) -> dict[str, Usual]:
    end = _name("", work)
    found = {name.removesuffix(end): each for name, each in known.items() if name.endswith(end)}
    return {kind: each for kind, each in found.items() if kind} if end else dict(known)


def _recall(path: Path) -> dict[str, Usual]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Usual])
    except (OSError, msgspec.MsgspecError):  # never written, or damaged: nothing is usual yet
        return {}


def _remember(path: Path, usual: Mapping[str, Usual]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        half = path.with_name(f".{path.name}.new")
        half.write_bytes(msgspec.json.encode(dict(usual)))
        half.replace(path)
    except OSError:  # a full disk costs the memory of speeds, not the job
        return
