"""What one ``with session.step()`` is of an optimizer step."""

from dataclasses import dataclass
from typing import Protocol


class StatePart(Protocol):
    """A micro-batch, or the whole step."""

    @property
    def weight(self) -> float:
        """What the mean loss of it is multiplied by, so that gradients come out right."""
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
