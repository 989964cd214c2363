"""A world that is made ready while another one trains: the answers of its agents."""

from collections.abc import Collection

from launcher.values.config import WorldDocument
from launcher.values.observation import FormWorld, PreparationObserved


class Preparation:
    """Observations of a world that is prepared, from messages.

    For a change in process, its members and the leaving workers first build the group
    (``answered``), and then agree to the step after which they change (``agreed``).
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
        """True if all its workers wait at the gate, or for the step that they agreed to."""
        agreed = self._step is not None and not self._open and not self._late
        return self.built and (agreed or not self.in_process)

    @property
    def settled(self) -> bool:
        """True if no answer is outstanding."""
        return self.ready or self.failed is not None

    def answered(self, replica: int) -> None:
        """Note that an agent's workers are at the gate, or have built the group."""
        self._waited.discard(replica)

    def ask(self, step: int) -> None:
        """Note that all members are asked to change after that many steps."""
        self._step, self._open, self._late = step, set(self.involved), False

    def agreed(self, replica: int, step: int, ok: bool) -> bool:
        """Note one answer; return True if all have answered and another step must be named."""
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
        """Return the observations as ``membership.decide`` needs them."""
        return PreparationObserved(
            form=self.form,
            since=self._since,
            ready=self.ready,
            failed=self.failed,
            in_process=self.in_process,
        )
