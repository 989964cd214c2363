"""Annotations with which owners give Brain instructions that an object's kind has no fields for."""

from collections.abc import Mapping

from brain.errors import BadInput
from brain.types.allocation import Bounds
from scaler.kubernetes.kinds.fields import GROUP

#: Value ``brain``: Brain may resize the object. Without the annotation Brain only advises.
MANAGED_BY = f"{GROUP}/managed-by"
MIN, MAX, UNIT = (f"{GROUP}/{word}" for word in ("min-replicas", "max-replicas", "unit"))
#: The replicated Job of a JobSet whose pods are the workers, if the JobSet has several.
WORKERS = f"{GROUP}/workers"
MANAGER = "brain"


def may_act(annotations: Mapping[str, str]) -> bool:
    """True if the owner allows Brain to do more than advise."""
    return annotations.get(MANAGED_BY) == MANAGER


def narrowed(given: Bounds, annotations: Mapping[str, str]) -> Bounds:
    """Return the bounds ``given`` by the object's fields, narrowed by the object's annotations.

    Raises:
        BadInput: an annotation is no whole number, or the annotations leave no size.

    >>> narrowed(Bounds(min=1, max=8), {MAX: "4", UNIT: "2"})
    Bounds(min=1, max=4, unit=2, start=None)
    """
    low = max(given.min, _whole(MIN, annotations, given.min))
    high = min(given.max, _whole(MAX, annotations, given.max))
    unit = _whole(UNIT, annotations, given.unit)
    bounds = Bounds(min=low, max=high, unit=unit)
    if next(bounds.sizes(), None) is None:
        raise BadInput(
            f"annotations {MIN}, {MAX} and {UNIT} allow no size between {given.min} and "
            f"{given.max}; widen the bounds that they set",
            field=MAX,
        )
    return bounds


def clamped(bounds: Bounds, replicas: int) -> int:
    """Return the largest size that the bounds allow and that is at most ``replicas``.

    If there is none, return the smallest size that the bounds allow.

    >>> [clamped(Bounds(min=2, max=7, unit=2), n) for n in (0, 3, 4, 9)]
    [2, 2, 4, 6]
    """
    sizes = list(bounds.sizes())
    return max((size for size in sizes if size <= replicas), default=sizes[0])


def _whole(name: str, annotations: Mapping[str, str], otherwise: int) -> int:
    text = annotations.get(name)
    if text is None:
        return otherwise
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(
            f"annotation {name} {text!r} is not a whole number of at least 1; correct it",
            field=name,
        )
    return int(text)
