"""Limits on the use of the service by one principal, by one address and by all clients together.

Each limit is a setting. A refusal is an ``Overloaded``, ``TooSlow`` or ``TooLarge`` that names the
setting. The module reads no clock: ``now`` is seconds on a monotonic clock. Use the module only on
the event loop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from typing import NamedTuple

from brain.errors import Overloaded, TooLarge, TooSlow
from brain.settings import Settings
from brain.types.record import Principal, Role

#: A client may send the requests of this many seconds together.
BURST_SECONDS = 5.0
#: Share of the body budget for telemetry, and the part of each share that one sender may use.
TELEMETRY_SHARE, SENDERS_PART = 0.5, 0.25
#: Number of buckets above which full buckets are dropped.
_MOST_BUCKETS = 20_000


class Bucket(NamedTuple):
    """A token bucket that contained ``tokens`` at the time ``at``, in seconds."""

    tokens: float
    at: float


def take(bucket: Bucket | None, now: float, *, per_second: float) -> tuple[Bucket, float]:
    """Take a token; return the new bucket, and the seconds to wait if there was no token.

    A bucket gains ``per_second`` tokens per second. It can hold as many tokens as it gains in
    ``BURST_SECONDS``, but at least one. If ``bucket`` is None, the result is based on a full
    bucket. If the clock goes back, the bucket gains nothing.

    >>> bucket, wait = take(Bucket(tokens=0.5, at=10.0), 10.25, per_second=2.0)
    >>> (bucket, wait)
    (Bucket(tokens=0.0, at=10.25), 0.0)
    >>> take(bucket, 10.25, per_second=2.0)
    (Bucket(tokens=0.0, at=10.25), 0.5)
    """
    most = max(1.0, per_second * BURST_SECONDS)
    if bucket is None:
        bucket = Bucket(most, now)
    filled = bucket.tokens
    # Comparisons cost a third of the calls of min and max; each request comes here.
    if now > bucket.at:
        filled += (now - bucket.at) * per_second
    if filled > most:
        filled = most
    if filled >= 1.0:
        return Bucket(filled - 1.0, now), 0.0
    return Bucket(filled, now), (1.0 - filled) / per_second


class Rates:
    """One rate limit, with a bucket for each client."""

    def __init__(self, limit: str, per_second: float) -> None:
        #: The setting's name.
        self.limit = limit
        self._per_second = per_second
        self._buckets: dict[str, Bucket] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._buckets

    def take(self, key: str, now: float, *, who: str) -> None:
        """Count one request of the client ``key``.

        Raises:
            Overloaded: the client has used up its rate; the error contains the seconds until the
                client may send its next request.
        """
        bucket = self._buckets.get(key)
        if bucket is None and len(self._buckets) >= _MOST_BUCKETS:
            self._forget(now)
        self._buckets[key], wait = take(bucket, now, per_second=self._per_second)
        if wait:
            raise self._overloaded(who, wait)

    def expect(self, key: str, now: float, *, who: str) -> None:
        """Raise if the client ``key`` has used up its rate; do not count a request.

        Raises:
            Overloaded: the rate is used up; the error contains the seconds until the client may
                send its next request.
        """
        _, wait = take(self._buckets.get(key), now, per_second=self._per_second)
        if wait:
            raise self._overloaded(who, wait)

    def _overloaded(self, who: str, wait: float) -> Overloaded:
        return Overloaded(
            f"{who} sent more than {self.limit} {self._per_second:g} allows; wait {wait:.1f} s "
            f"before the next request, or have an administrator raise {self.limit}",
            retry_after_seconds=wait,
            limit=self.limit,
        )

    def _forget(self, now: float) -> None:
        """Drop buckets that are full again, and the oldest half if none is."""
        full = max(1.0, self._per_second * BURST_SECONDS)
        kept = {
            key: bucket
            for key, bucket in self._buckets.items()
            if bucket.tokens + (now - bucket.at) * self._per_second < full
        }
        newest = sorted(kept, key=lambda key: kept[key].at)[-_MOST_BUCKETS // 2 :]
        self._buckets = {key: kept[key] for key in newest}


class RequestRates:
    """Request rates of each token, and of each address on routes that need no token.

    Each method raises:
        Overloaded: the rate is used up; the message names the setting.
    """

    def __init__(self, settings: Settings) -> None:
        self._people = Rates("requests_per_second", settings.requests_per_second)
        self._programs = Rates("program_requests_per_second", settings.program_requests_per_second)
        self._open = Rates("open_requests_per_second", settings.open_requests_per_second)

    def expect(self, token: str, *, now: float) -> None:
        """Raise if the rate of a token is used up; call this before the token is looked up."""
        for rates in (self._people, self._programs):
            if token in rates:
                rates.expect(token, now, who="this token")

    def take(self, token: str, principal: Principal, *, now: float) -> None:
        """Count a request of a principal; raise if the request exceeds the rate."""
        is_program = principal.role in (Role.AGENT, Role.SCALER)
        rates = self._programs if is_program else self._people
        rates.take(token, now, who=principal.name)

    def open(self, address: str, *, now: float) -> None:
        """Count a request on a route that needs no token; raise if the request exceeds the rate."""
        self._open.take(address, now, who=f"address {address}")


class BodyBudget:
    """The limit on the bytes of all request bodies in memory.

    Half of the bytes are reserved for telemetry, and the other half for all other requests. One
    sender may use at most a quarter of either half, or ``body_bytes`` if that is more.
    """

    def __init__(self, limit_bytes: int, *, body_bytes: int) -> None:
        self._limit = limit_bytes
        #: Bytes for telemetry; the other requests share the rest.
        telemetry = int(limit_bytes * TELEMETRY_SHARE)
        self._shares = (limit_bytes - telemetry, telemetry)
        self._parts = [max(share * SENDERS_PART, body_bytes) for share in self._shares]
        self._held = [0, 0]
        self._senders: Counter[tuple[str, bool]] = Counter()

    @property
    def held_bytes(self) -> int:
        """Return the bytes that bodies use now."""
        return sum(self._held)

    @contextmanager
    def body(self, sender: str, *, telemetry: bool) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes bytes from the budget; the end of the block returns them.

        The function raises:
            Overloaded: this half of the budget, or this sender's portion of it, is used up.
            TooLarge: the body alone is larger than this half of the budget.
        """
        held = 0

        def add(count: int) -> None:
            nonlocal held
            self.take(sender, count, telemetry=telemetry, held=held)
            held += count

        try:
            yield add
        finally:
            self.give_back(sender, held, telemetry=telemetry)

    def take(self, sender: str, count: int, *, telemetry: bool, held: int = 0) -> None:
        """Take ``count`` bytes for a request that already uses ``held`` bytes; raise the errors
        that ``body`` lists.
        """
        if held + count > self._shares[telemetry]:
            raise TooLarge(
                f"the body is larger than half of body_budget_bytes {self._limit}, and one "
                "request may use only half; split the request",
                limit="body_budget_bytes",
            )
        if (
            self._held[telemetry] + count > self._shares[telemetry]
            or self._senders[sender, telemetry] + count > self._parts[telemetry]
        ):
            raise Overloaded(
                f"request bodies in memory reach body_budget_bytes {self._limit} (telemetry gets "
                "half, everything else gets the other half, and one sender gets at most a "
                "quarter of either half); send fewer requests at once, or have an administrator "
                "raise body_budget_bytes",
                limit="body_budget_bytes",
            )
        self._held[telemetry] += count
        self._senders[sender, telemetry] += count

    def give_back(self, sender: str, count: int, *, telemetry: bool) -> None:
        """Return bytes to the budget."""
        self._held[telemetry] -= count
        self._senders[sender, telemetry] -= count
        if not self._senders[sender, telemetry]:
            del self._senders[sender, telemetry]


def check_length(length: int, limit: str, limit_bytes: int) -> None:
    """Raise for a body that is too long.

    Raises:
        TooLarge: the body is longer than ``limit_bytes``; the message names the setting ``limit``.
    """
    if length > limit_bytes:
        raise TooLarge(f"the body is larger than {limit} {limit_bytes}; split it", limit=limit)


def too_slow(what: str, limit: str, seconds: float) -> TooSlow:
    """Return the error for a request that was not complete within ``seconds``."""
    return TooSlow(
        f"the request's {what} did not arrive within {limit} {seconds:g}; send it again, or "
        f"have an administrator raise {limit}",
        limit=limit,
    )


def source_of(address: str) -> str:
    """Return the key under which the service counts an address's requests.

    The key is an IPv4 address, or an IPv6 /64 network.

    >>> source_of("10.0.0.7"), source_of("::ffff:10.0.0.7"), source_of("2001:db8::1:2:3:4")
    ('10.0.0.7', '10.0.0.7', '2001:db8::/64')
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ip_network((int(ip), 64), strict=False))


@dataclass(slots=True, eq=False)
class ClientConnection:
    """An open connection of a client; at a limit, its fields decide whether it is closed."""

    address: str
    #: True once a request on the connection was signed in.
    signed_in: bool = False
    #: True while the service waits for the client: for a request, for the rest of one, or until the
    #: client reads.
    waits: bool = True


class ConnectionTable:
    """The open connections, by address, oldest first."""

    def __init__(self, *, most: int, per_address: int) -> None:
        self._most, self._per_address = most, per_address
        self._open: dict[str, dict[ClientConnection, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, connection: ClientConnection, *, is_proxy: bool = False
    ) -> tuple[ClientConnection, str] | None:
        """Admit a connection; return the connection that it replaces and the name of the reached
        limit.

        The result is None if no limit is reached. At a limit, a new connection replaces the oldest
        connection that waits for its client and has not signed in, because a real client sends its
        request immediately.

        Raises:
            Overloaded: a limit is reached, and no connection can be replaced.
        """
        beside = self._open.get(connection.address, {})
        closed, limit = None, ""
        if len(beside) >= self._per_address and not is_proxy:
            closed, limit = _oldest_idle(beside), "connections_per_address"
            if closed is None:
                raise _too_many(limit, self._per_address, connection.address)
        elif self._count >= self._most:
            by_size = sorted(self._open.values(), key=len, reverse=True)
            closed, limit = next(filter(None, map(_oldest_idle, by_size)), None), "connections"
            if closed is None:
                raise _too_many(limit, self._most, "everybody")
        if closed is not None:
            self.remove(closed)
        self._open.setdefault(connection.address, {})[connection] = None
        self._count += 1
        return None if closed is None else (closed, limit)

    def remove(self, connection: ClientConnection) -> None:
        """Forget a connection; do nothing if it is unknown."""
        beside = self._open.get(connection.address, {})
        if connection not in beside:
            return
        del beside[connection]
        self._count -= 1
        if not beside:
            del self._open[connection.address]


def displaced(limit: str) -> TooSlow:
    """Return the error for a connection that was closed because a new one replaced it."""
    return TooSlow(
        f"the service reached {limit} and closed this connection, which had waited longest; "
        f"connect again, or have an administrator raise {limit}",
        limit=limit,
    )


def _oldest_idle(connections: Iterable[ClientConnection]) -> ClientConnection | None:
    return next(
        (connection for connection in connections if connection.waits and not connection.signed_in),
        None,
    )


def _too_many(limit: str, most: int, whose: str) -> Overloaded:
    return Overloaded(
        f"{whose} reached {limit} {most}; close a connection, or have an administrator "
        f"raise {limit}",
        limit=limit,
    )
