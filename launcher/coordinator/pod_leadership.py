"""Leadership among pods: at first the oldest pod, which the scaler names, then the lowest rank."""

from collections.abc import Sequence
from pathlib import Path

from brain.types.world import Member
from launcher.coordinator.leadership import EndpointLeadership
from launcher.coordinator.pod_place import read_place
from launcher.values.config import WorldDocument


class PodLeadership(EndpointLeadership):
    """Leadership with a changing endpoint: a file names a live agent, which coordinates or knows
    the coordinator.

    An agent listens only at its own address, so there is no ``home``.
    """

    def __init__(self, file: str, mine: str) -> None:
        super().__init__("", mine, bound=False)
        self._file = Path(file)

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Return the addresses to try, in order. Before the first world this is the endpoint; later
        it is the last world's coordinator, and then the members with lower ranks than this agent.
        """
        self._look()
        found = super().candidates(last)
        return [each for each in found if each]

    def others(self, last: WorldDocument | None) -> Sequence[str]:
        """Return the endpoint, and those few members of the last world whose ranks come next after
        this agent's rank.
        """
        self._look()
        return [each for each in super().others(last) if each]

    def claim(self, address: str, epoch: int, *, hung: bool) -> bool:
        """Return True if this agent may lead: before the first world only the oldest agent, later
        any agent whose turn it is in the order of rank.
        """
        self._look()
        return super().claim(address, epoch, hung=hung)

    async def gone(
        self, members: Sequence[Member], *, lease_expired: bool, in_touch: bool
    ) -> frozenset[int]:
        """Return the replicas that the cluster, or their own machine, reports as ended."""
        told = frozenset(read_place(self._file).gone)
        known = frozenset(member.replica for member in members if member.replica in told)
        rest = [member for member in members if member.replica not in known]
        found = await super().gone(rest, lease_expired=lease_expired, in_touch=in_touch)
        return known | found

    def settle(self) -> None:
        """Do nothing, because a pod listens only at its own address."""

    @property
    def home(self) -> str:
        """Return an empty string, because the file names a live agent to new agents."""
        return ""

    def _look(self) -> None:
        self._endpoint = read_place(self._file).endpoint
        self._bound = self._endpoint == self._mine
