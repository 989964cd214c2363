"""A world that is made ready while another one trains: who has answered, and what."""

from dataclasses import replace

from launcher.config import WorldDocument
from launcher.worlds.sight import Form, Preparing


class Preparation:
    """The facts of one, gathered from frames."""

    def __init__(self, form: Form, document: WorldDocument, *, since: float) -> None:
        self.form, self.document = form, document
        self._since = since
        self._waited = {member.replica for member in document.members}
        self.failed: str | None = None

    @property
    def ready(self) -> bool:
        """Whether all its workers wait at the gate."""
        return not self._waited and self.failed is None

    @property
    def settled(self) -> bool:
        """Whether there is no answer to wait for."""
        return self.ready or self.failed is not None

    def answered(self, replica: int) -> None:
        """An agent said whether its workers are at the gate."""
        self._waited.discard(replica)

    def needs(self, replica: int) -> bool:
        """Whether it is nothing without this replica."""
        return self.failed is None and any(m.replica == replica for m in self.document.members)

    def fits(self, form: Form) -> bool:
        """Whether it is exactly what must be formed."""
        return self.ready and self.form == form

    def seen(self) -> Preparing:
        """The facts as ``membership.decide`` wants them."""
        made = Preparing(form=self.form, since=self._since, ready=self.ready)
        return replace(made, failed=self.failed)
