"""``x-kubernetes-validations``: which rules of a schema an object breaks."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.kubernetes.apiserver.objects.errors import Cause


def broken_rules(
    new: Mapping[str, Any], old: Mapping[str, Any] | None, schema: Any
) -> Iterator[Cause]:
    """Yield what breaks."""
    return iter(())
