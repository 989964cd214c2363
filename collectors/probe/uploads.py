"""Tracks checkpoints that are written in the background. Such a checkpoint contains the state at
the time of the save call, and is complete once the future of this call has succeeded.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Upload:
    """A checkpoint that is written in the background, with the step of its state."""

    def __init__(self, place: Any, step: int) -> None:
        self.place, self.step = place, step
        #: None until the call that started the upload has returned.
        self.future: Any = None

    @property
    def over(self) -> bool:
        """True if the upload's work has ended."""
        return self.future is not None and bool(self.future.done())

    @property
    def complete(self) -> bool:
        """True if the upload has ended and its checkpoint can be loaded."""
        return self.over and not self.future.cancelled() and self.future.exception() is None


class Uploads:
    """The uploads of one process.

    Uploads are polled, because a callback may run too late, when the script already has the
    result and ends.
    """

    def __init__(self) -> None:
        self._under_way: list[Upload] = []

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def begin(self, place: Any, step: int) -> Upload:
        """Add an upload before its background work begins; return it."""
        upload = Upload(place, step)
        self._under_way.append(upload)
        return upload

    def forget(self, upload: Upload) -> None:
        """Remove an upload whose call failed."""
        self._under_way = [each for each in self._under_way if each is not upload]

    def writes(self, place: Any) -> bool:
        """True if a save to ``place`` is the background part of one of the uploads."""
        return any(each.place == place for each in self._under_way)

    def writes_state_of(self, step: int) -> bool:
        """True if the state after ``step`` is still being written."""
        return any(each.step == step and not each.over for each in self._under_way)

    def take_complete(self) -> list[Upload]:
        """Return and remove the complete uploads; a failed upload never becomes complete."""
        over = [each for each in self._under_way if each.over]
        self._under_way = [each for each in self._under_way if each not in over]
        return [each for each in over if each.complete]
