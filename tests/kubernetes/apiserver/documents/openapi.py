"""OpenAPI of what is installed."""

from typing import Any

from tests.kubernetes.apiserver.kinds import Kinds


class OpenApi:
    """Placeholder."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds

    def document(self, path: str) -> Any:
        """Return a document."""
        return None
