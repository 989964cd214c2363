"""A world that is prepared while another one trains, with the answers of its agents."""

from collections.abc import Collection

from launcher.values.action import FormWorld
from launcher.values.config import WorldDocument
from launcher.values.observation import PreparationObserved


class Preparation:
    """Observations of a prepared world, from messages.

    For a change in process, the world's members and the leaving workers first build the process
    group (``answered``), and then agree on the step after which they change (``agreed``).
    """

    def __init__(
        self,
        form: FormWorld,
        document: WorldDocument,
        *,
        since: float,
        involved: Collection[int] = (),
        first: int | None = None,
    ) -> None:
        """``involved`` are replicas beside the members; replica ``first`` names the step of the
        change, None if no step is needed.
        """
        self.form, self.document, self.first = form, document, first
        self._since = since
        self.involved = frozenset(involved) | {member.replica for member in document.members}
        self._waited = set(self.involved)
        #: The step asked for, the members that have not answered, and True if one could not agree.
        self._step: int | None = None
        self._open: set[int] = set()
        self._late = False
        self.failed: str | None = None

    @property
    def in_process(self) -> bool:
        """True if the change ends no process."""
        return self.first is not None

    @property
    def built(self) -> bool:
        """True if everything for the next world is built."""
        return not self._waited and self.failed is None

    @property
    def ready(self) -> bool:
        """True if all workers of the prepared world wait for its start, or for the agreed step."""
        agreed = self._step is not None and not self._open and not self._late
        return self.built and (agreed or not self.in_process)

    @property
    def settled(self) -> bool:
        """True if no answer is outstanding."""
        return self.ready or self.failed is not None

    def answered(self, replica: int) -> None:
        """Store that an agent's workers wait for the prepared world's start, or have built its
        process group.
        """
        self._waited.discard(replica)

    def ask(self, step: int) -> None:
        """Store that all members are asked to change after ``step`` steps."""
        self._step, self._open, self._late = step, set(self.involved), False

    def agreed(self, replica: int, step: int, ok: bool) -> bool:
        """Store one answer; return True if all have answered, and one of them did not agree, so
        that another step must be chosen.
        """
        if step != self._step:
            return False
        self._open.discard(replica)
        self._late |= not ok
        return not self._open and self._late

    def needs(self, replica: int) -> bool:
        """True if the prepared world needs this replica."""
        return self.failed is None and replica in self.involved

    def fits(self, form: FormWorld) -> bool:
        """True if the prepared world is exactly the one to form."""
        return self.ready and self.form == form

    def seen(self) -> PreparationObserved:
        """Return the observations in the form that ``membership.decide`` needs."""
        return PreparationObserved(
            form=self.form,
            since=self._since,
            ready=self.ready,
            failed=self.failed,
            in_process=self.in_process,
        )
