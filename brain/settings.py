"""One frozen ``Settings``: every field says its unit, its default and why.

Sources, later ones win: the defaults here, ``brain.toml`` in the state directory, environment
variables ``BRAIN_<FIELD>``, command-line flags. Unknown keys are errors. Nothing here reads
any of those; shells pass mappings in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, get_type_hints

from brain.errors import BadInput, UnknownField
from brain.spelling import meant


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an installation."""

    #: Address to listen on; loopback, because a service without configuration serves one machine.
    host: str = "127.0.0.1"
    #: TCP port; 0 takes a free one.
    port: int = 8080
    #: Names beside loopback's by which browsers may reach the service, separated by commas; any
    #: other ``Host`` is refused, because a page elsewhere could point its own name at us.
    allowed_hosts: str = ""
    #: SQLAlchemy URL; empty is SQLite in the state directory, which needs nothing installed.
    database_url: str = ""
    #: Seconds between turns of a pool; a resize costs seconds, so deciding more often is noise.
    tick_seconds: float = 2.0
    #: Seconds a pool's lease lasts; a dead Brain's pools are taken over after so long. A turn
    #: renews it with each write.
    lease_seconds: float = 8.0
    #: Approval mode of jobs that name none: off, shadow, approve or auto.
    policy_mode: str = "approve"
    #: Optimizer steps that a size must have been measured for; the standard error of a median
    #: over fewer is a guess.
    minimum_steps: int = 30
    #: Relative standard error of the median step time above which a size counts as not measured.
    spread_limit: float = 0.05
    #: Gain in throughput below which a restart is never worth it; 0.1 is 10 %.
    minimum_gain: float = 0.1
    #: Seconds after a change during which the job is left alone; two changes must not overlap in
    #: the measurements.
    dwell_seconds: float = 300.0
    #: The same of a job that shares its pool, where that is more than four of its restarts: others
    #: wait for what it does not need, and each round weighs what a restart costs.
    shared_dwell_seconds: float = 0.0
    #: A restart must have paid for itself within so many seconds.
    payback_seconds: float = 1800.0
    #: Seconds that a change is assumed to cost until the job's own changes were measured.
    restart_seconds: float = 30.0
    #: Telemetry older than so many seconds is stale; stale telemetry means hold.
    stale_seconds: float = 60.0
    #: Seconds a proposal waits for approval.
    proposal_seconds: float = 3600.0
    #: Seconds a growing world waits for missing replicas before it takes what there is, in units.
    patience_seconds: float = 120.0
    #: Seconds after which an applied plan without enough measurements is inconclusive.
    verify_seconds: float = 600.0
    #: Rollbacks within 24 h after which a job is advise-only.
    rollback_limit: int = 2
    #: Seconds that raw samples are kept (24 h); also the accepted age of a late sample.
    raw_seconds: float = 86_400.0
    #: Seconds that 1-minute means are kept (30 d).
    means_seconds: float = 2_592_000.0
    #: Seconds that the directory and the output of a job on this machine stay after its end (30 d).
    ended_job_seconds: float = 2_592_000.0
    #: Bytes of the directories of ended jobs together; the oldest go first (20 GiB).
    ended_job_bytes: int = 20 * 1024**3
    #: Samples per batch above which ingest asks the sender to split it.
    batch_limit: int = 10_000
    #: Seconds between two rounds of a pool in which nobody comes or goes.
    round_seconds: float = 30.0
    #: Share of a pool that changes hands in one round at most, one job's at least; 0.1 is 10 %.
    moved_share: float = 0.1
    #: Let Brain move replicas to other nodes or accelerators; needs a scaler that places replicas
    #: where the wish says.
    migrate: bool = False
    #: Bytes of a request body, decompressed; a larger one is refused before it is parsed.
    body_limit_bytes: int = 16 * 1024 * 1024
    #: Bytes of a body on a route that needs no token; a sign-in code takes some hundred.
    open_body_bytes: int = 4096
    #: Bytes of all bodies in memory together; telemetry has a half of its own, and one sender a
    #: quarter of a half at most.
    body_budget_bytes: int = 256 * 1024 * 1024
    #: Seconds from the first byte of a request, or from connecting, until its head is whole.
    head_seconds: float = 10.0
    #: Seconds from the moment that a body is read until it is whole.
    body_seconds: float = 60.0
    #: Open connections; 0 is as many as the process may have descriptors, less 256.
    connections: int = 0
    #: Open connections of one address, trusted proxies excepted.
    connections_per_address: int = 600
    #: Requests per second of one token, in the mean; five seconds of them may come at once.
    requests_per_second: float = 200.0
    #: The same of a scaler's token, and of that which all agents of one job share.
    program_requests_per_second: float = 1000.0
    #: Attempts to sign in with a code, per second of one address.
    open_requests_per_second: float = 5.0
    #: Addresses or networks of proxies, separated by commas, whose X-Forwarded-For and
    #: X-Forwarded-Proto are believed.
    trusted_proxies: str = ""
    #: File with the certificate chain (PEM) to serve HTTPS with; empty is HTTP.
    tls_certificate: str = ""
    #: File with its private key; empty where it is in the file of the certificate.
    tls_key: str = ""
    #: Seconds an SSE stream is silent at most.
    heartbeat_seconds: float = 15.0
    #: Seconds from a request to stop until the process is gone, open streams included.
    shutdown_seconds: float = 5.0
    #: Jobs run on this machine; `brain up` says so to the service that it starts.
    local_jobs: bool = False
    #: Accept jobs over the network although their commands run on this machine.
    allow_remote_submit: bool = False
    #: Money per accelerator and hour, ``A100=2.5, cpu=0.04``; a bare number is the price of any
    #: kind. Where there are no accelerators processors are counted. Empty: no word of money.
    accelerator_prices: str = ""
    #: Stands before amounts of money.
    currency: str = "€"


#: Settings that take one of a few words.
_CHOICES = {"policy_mode": ("off", "shadow", "approve", "auto")}

#: Limits below which the service could be asked nothing, not even to mend them.
_AT_LEAST = {
    "body_limit_bytes": 1024,
    "open_body_bytes": 512,
    "body_budget_bytes": 65_536,
    "head_seconds": 0.1,
    "body_seconds": 0.1,
    "connections": 0,
    "connections_per_address": 1,
    "requests_per_second": 0.1,
    "program_requests_per_second": 0.1,
    "open_requests_per_second": 0.1,
}


def settings_from(*sources: Mapping[str, Any]) -> Settings:
    """Merge ``sources`` of field values, later ones winning, over the defaults.

    Raises:
        UnknownField: a key is no setting.
        BadInput: a value is not of its field's type, none of its words, or out of its range.
    """
    names = [field.name for field in fields(Settings)]
    types = get_type_hints(Settings)
    merged = Settings()
    for source in sources:
        for key, value in source.items():
            if key not in names:
                near = meant(key, names)
                hint = f"did you mean {near}?" if near else "`brain config` lists them"
                raise UnknownField(f"there is no setting {key}; {hint}", field=key)
            merged = replace(merged, **{key: _typed(key, value, types[key])})
    return merged


def settings_in_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings among environment variables: ``BRAIN_PORT`` is ``port``."""
    names = {f"BRAIN_{field.name.upper()}": field.name for field in fields(Settings)}
    return {names[key]: value for key, value in environment.items() if key in names}


def prices_of(text: str) -> dict[str, float]:
    """Read ``accelerator_prices``; the key of any kind is ``*``.

    Raises:
        BadInput: a part is neither ``KIND=NUMBER`` nor a number, or it is below 0.

    >>> prices_of("A100=2.5, cpu=0.04"), prices_of("1")
    ({'A100': 2.5, 'cpu': 0.04}, {'*': 1.0})
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, price = part.rpartition("=")
        try:
            found[kind.strip() or "*"] = float(price)
        except ValueError:
            found[kind.strip() or "*"] = math.nan
        if not 0 <= found[kind.strip() or "*"] < math.inf:
            raise BadInput(
                f"price {part!r} is neither KIND=NUMBER nor a number of at least 0; write A100=2.5",
                field="accelerator_prices",
            )
    return found


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read ``trusted_proxies``, each of IPv4 also as a listener for IPv6 sees its addresses.

    Raises:
        BadInput: a part is neither an address nor a network.

    >>> [str(network) for network in networks_of("10.0.0.0/8, 127.0.0.1")]
    ['10.0.0.0/8', '::ffff:a00:0/104', '127.0.0.1/32', '::ffff:7f00:1/128']
    """
    found: list[IPv4Network | IPv6Network] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            network = ip_network(part)
        except ValueError as bad:
            raise BadInput(
                f"trusted_proxies {part!r} is not an address or network; write 10.0.0.7 or "
                "10.0.0.0/8",
                field="trusted_proxies",
            ) from bad
        found.append(network)
        if isinstance(network, IPv4Network):
            mapped = f"::ffff:{network.network_address}/{96 + network.prefixlen}"
            found.append(IPv6Network(mapped))
    return tuple(found)


#: Type of a setting -> the words of an error about another type.
_KINDS: dict[type, str] = {
    int: "a whole number; write for example 4",
    float: "a number; write for example 0.5",
}


def _typed(key: str, value: Any, kind: type) -> Any:
    if key in _CHOICES and value not in _CHOICES[key]:
        raise BadInput(
            f"{key} {value!r} is not allowed; choose one of {', '.join(_CHOICES[key])}", field=key
        )
    if kind is bool and isinstance(value, str):
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if value.lower() not in words:
            raise BadInput(f"{key} {value!r} is neither true nor false", field=key)
        return words[value.lower()]
    try:
        typed = kind(value)
    except (TypeError, ValueError) as bad:
        raise BadInput(f"{key} {value!r} is not {_KINDS[kind]}", field=key) from bad
    _check_range(key, typed, kind)
    return typed


def _check_range(key: str, typed: Any, kind: type) -> None:
    if key == "port" and not 0 <= typed <= 65535:
        raise BadInput(
            f"port {typed} is not a TCP port; give 0 (takes a free port) to 65535", field=key
        )
    if key == "accelerator_prices":
        prices_of(typed)
    if key == "trusted_proxies":
        networks_of(typed)
    if key in _AT_LEAST and not typed >= _AT_LEAST[key]:
        least = _AT_LEAST[key]
        raise BadInput(
            f"{key} {typed:g} would refuse every request; give {least} or more", field=key
        )
    if kind is int and typed < 0:
        raise BadInput(f"{key} {typed} is below 0; give 0 or more", field=key)
    if key.endswith("_seconds") and not 0 <= typed < math.inf:
        raise BadInput(f"{key} {typed:g} is not a duration; give seconds, 0 or more", field=key)
    if kind is float and not 0 <= typed < math.inf:
        raise BadInput(
            f"{key} {typed:g} is not a share; give 0 or more, such as 0.1 for 10 %", field=key
        )
