"""The state that all connections of a service share, and the admission of new connections."""

import ssl
from collections.abc import Callable
from ipaddress import ip_address

from brain.api import limits
from brain.api.limits import ClientConnection, ConnectionTable
from brain.api.metrics import Metrics
from brain.api.routes.telemetry import Tell
from brain.settings import Settings, networks_of


class Connections:
    """The state that all connections of a service share."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        tls: ssl.SSLContext | None,
        take: Callable[[bytes, Tell], bool | None],
        *,
        most: int,
    ) -> None:
        """``take`` takes requests without ASGI, as ``telemetry.take_directly`` does."""
        self.take = take
        self.metrics, self.tls, self.head_seconds = metrics, tls, settings.head_seconds
        #: Connections that were refused, and may still read the refusal.
        self.lingering = 0
        self._proxies = networks_of(settings.trusted_proxies)
        self._table = ConnectionTable(most=most, per_address=settings.connections_per_address)
        #: Functions that close a connection for another one.
        self._closing: dict[ClientConnection, Callable[[str], None]] = {}

    def admit(self, address: str, close: Callable[[str], None]) -> ClientConnection:
        """Admit a connection; if a limit is reached, another connection may be closed to make room.

        Raises:
            Overloaded: there are too many connections.
        """
        connection = ClientConnection(limits.source_of(address))
        proxied = any(ip_address(address) in network for network in self._proxies)
        displaced = self._table.add(connection, is_proxy=proxied)
        self._closing[connection] = close
        if displaced is not None:
            closed, limit = displaced
            self._closing[closed](limit)
        self.metrics.connections.set(len(self._table))
        return connection

    def forget(self, connection: ClientConnection) -> None:
        self._table.remove(connection)
        self._closing.pop(connection, None)
        self.metrics.connections.set(len(self._table))
