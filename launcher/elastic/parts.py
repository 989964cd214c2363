"""The part of an optimizer step that one ``with session.step()`` covers."""

from dataclasses import dataclass
from typing import Protocol


class StatePart(Protocol):
    """The part of an optimizer step that this process computes next: one micro-batch, or the whole
    step.
    """

    @property
    def weight(self) -> float:
        """Return the factor for this part's mean loss that makes the sum of all parts' gradients
        the step's gradient.
        """
        ...

    @property
    def last(self) -> bool:
        """True if gradients are exchanged in this part and the optimizer steps."""
        ...


@dataclass(frozen=True, slots=True)
class _Whole:
    weight: float = 1.0
    last: bool = True


#: A step without accumulation.
WHOLE = _Whole()
