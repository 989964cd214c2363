"""The part of an optimizer step that one ``with session.step()`` covers."""

from dataclasses import dataclass
from typing import Protocol


class StatePart(Protocol):
    """The part of an optimizer step that this process computes next: one micro-batch, or the whole
    step.
    """

    @property
    def weight(self) -> float:
        """Return the factor for this part's mean loss with which the parts' gradients add up to the
        step's.
        """
        ...

    @property
    def last(self) -> bool:
        """True if gradients are exchanged now and the optimizer steps."""
        ...


@dataclass(frozen=True, slots=True)
class _Whole:
    weight: float = 1.0
    last: bool = True


#: A step without accumulation.
WHOLE = _Whole()
