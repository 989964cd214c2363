"""The frozen class ``Settings``: every field states its unit, its default and the reason for the
default.

The sources of settings are the defaults here, ``brain.toml`` in the state directory, environment
variables ``BRAIN_<FIELD>``, and command-line flags; later sources win. Unknown keys are errors.
This module reads none of these sources; its callers pass mappings.
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
    #: Address to listen on; loopback, because a service without configuration serves one machine.
    host: str = "127.0.0.1"
    #: TCP port; 0 takes a free port.
    port: int = 8080
    #: Names, separated by commas, by which browsers may reach the service besides loopback's. Any
    #: other ``Host`` is refused, because a foreign page could point its own name at the service.
    allowed_hosts: str = ""
    #: SQLAlchemy URL; empty means SQLite in the state directory, which needs no installation.
    database_url: str = ""
    #: Most connections that the service opens to the database.
    database_connections: int = 48
    #: Seconds between turns of a pool; a resize costs seconds, so deciding more often is noise.
    tick_seconds: float = 2.0
    #: Seconds that a pool's lease lasts, after which another Brain takes over the pools of a dead
    #: one. A turn renews the lease with each write.
    lease_seconds: float = 8.0
    #: Approval mode of jobs that name none: off, shadow, approve or auto.
    policy_mode: str = "approve"
    #: Optimizer steps after which a size counts as measured; over fewer, the standard error of the
    #: median is a guess.
    minimum_steps: int = 30
    #: Relative standard error of the median step time above which a size counts as not measured.
    spread_limit: float = 0.05
    #: Gain in throughput below which a restart is never worth it; 0.1 is 10 %.
    minimum_gain: float = 0.1
    #: Seconds after a change during which the job is left alone; two changes must not overlap in
    #: the measurements.
    dwell_seconds: float = 300.0
    #: The same for a job that shares its pool, but at least four of its restarts. It is shorter
    #: because other jobs wait for resources that the job does not need, and each round weighs the
    #: cost of a restart.
    shared_dwell_seconds: float = 0.0
    #: Seconds within which a restart must have paid for itself.
    payback_seconds: float = 1800.0
    #: Seconds that a change is assumed to cost before the job's own changes were measured.
    restart_seconds: float = 30.0
    #: Seconds after which telemetry is stale, but at least three steps of a slow job; Brain changes
    #: nothing on stale telemetry.
    stale_seconds: float = 60.0
    #: Seconds that a proposal waits for approval.
    proposal_seconds: float = 3600.0
    #: Seconds that a growing world waits for missing replicas; then it takes the present ones, in
    #: whole units.
    patience_seconds: float = 120.0
    #: Seconds after which an applied plan without enough measurements is inconclusive, but at least
    #: the time of one and a half times ``minimum_steps`` steps.
    verify_seconds: float = 600.0
    #: Rollbacks within 24 h after which a job is advise-only.
    rollback_limit: int = 2
    #: Seconds that raw samples are kept (24 h); also the accepted age of a late sample.
    raw_seconds: float = 86_400.0
    #: Seconds that 1-minute means are kept (30 d); then they become 1-hour means.
    means_seconds: float = 2_592_000.0
    #: Seconds that 1-hour means are kept (1 y).
    hours_seconds: float = 31_536_000.0
    #: Seconds that the directory and the output of a job on this machine stay after its end (30 d).
    ended_job_seconds: float = 2_592_000.0
    #: Most bytes of the directories of all ended jobs; the oldest go first (20 GiB).
    ended_job_bytes: int = 20 * 1024**3
    #: Samples per batch above which ingest asks the sender to split it.
    batch_limit: int = 10_000
    #: Seconds between two rounds of a pool in which no job comes or goes.
    round_seconds: float = 30.0
    #: Largest share of a pool that changes hands in one round, though at least one job's; 0.1 is 10
    #: %.
    moved_share: float = 0.1
    #: Let Brain move replicas to other nodes or accelerators; needs a scaler that places replicas
    #: on the named nodes.
    migrate: bool = False
    #: Most bytes of a decompressed request body; a larger one is refused before it is parsed.
    body_limit_bytes: int = 16 * 1024 * 1024
    #: Most bytes of a body on a route that needs no token; a sign-in code takes a few hundred.
    open_body_bytes: int = 4096
    #: Most bytes of all bodies in memory. Telemetry has one half, all other requests the other, and
    #: one sender at most a quarter of a half.
    body_budget_bytes: int = 256 * 1024 * 1024
    #: Seconds from the first byte of a request, or from connecting, until its head is complete.
    head_seconds: float = 10.0
    #: Seconds from the start of reading a body until it is complete.
    body_seconds: float = 60.0
    #: Most open connections; 0 is the process's limit of descriptors, less 256.
    connections: int = 0
    #: Most open connections of one address, except trusted proxies.
    connections_per_address: int = 600
    #: Requests per second of one token, on average; five seconds' worth may come at once.
    requests_per_second: float = 200.0
    #: The same for a scaler's token, and for the token that all agents of one job share.
    program_requests_per_second: float = 1000.0
    #: Attempts per second of one address to sign in with a code.
    open_requests_per_second: float = 5.0
    #: Addresses or networks of proxies, separated by commas, whose X-Forwarded-For and
    #: X-Forwarded-Proto are believed.
    trusted_proxies: str = ""
    #: File with the certificate chain (PEM) for HTTPS; empty means HTTP.
    tls_certificate: str = ""
    #: File with the certificate's private key; empty if the certificate's file contains the key.
    tls_key: str = ""
    #: Longest silence of an SSE stream, in seconds.
    heartbeat_seconds: float = 15.0
    #: Seconds from a request to stop until the process has ended, even with open streams.
    shutdown_seconds: float = 5.0
    #: True if jobs run on this machine; `brain up` sets this for the service that it starts.
    local_jobs: bool = False
    #: True: accept jobs over the network although their commands run on this machine.
    allow_remote_submit: bool = False
    #: Price of an accelerator per hour, ``A100=2.5, cpu=0.04``; a bare number is the price of any
    #: kind. Jobs without accelerators count processors. Empty: reports show no costs.
    accelerator_prices: str = ""
    #: Currency sign before amounts of money.
    currency: str = "€"
    #: Form of the service's log lines: text, or JSON objects. With JSON, each request has a line,
    #: except those of telemetry.
    log_format: str = "text"
    #: True: send traces to an OpenTelemetry collector, which the variables ``OTEL_*`` name; needs
    #: the extra ``otel``.
    traces: bool = False


#: Settings with a fixed set of values.
_CHOICES = {
    "policy_mode": ("off", "shadow", "approve", "auto"),
    "log_format": ("text", "json"),
}

#: Least values of limits: below them the service would refuse every request.
_AT_LEAST = {
    # The loops beside requests have one each.
    "database_connections": 5,
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
    """Merge ``sources`` of field values over the defaults; later sources win.

    Raises:
        UnknownField: a key is not a setting.
        BadInput: a value has the wrong type, is not one of the allowed values, or is out of range.
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
    """Return the settings in environment variables: ``BRAIN_PORT`` is ``port``."""
    names = {f"BRAIN_{field.name.upper()}": field.name for field in fields(Settings)}
    return {names[key]: value for key, value in environment.items() if key in names}


def prices_of(text: str) -> dict[str, float]:
    """Parse ``accelerator_prices``; the key ``*`` stands for any kind.

    Raises:
        BadInput: a part is neither ``KIND=NUMBER`` nor a number, or its number is below 0.

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
                f"price {part!r} is neither KIND=NUMBER nor a number of at least 0; write "
                "A100=2.5, for example",
                field="accelerator_prices",
            )
    return found


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse ``trusted_proxies``; each IPv4 network is returned a second time, in its IPv6-mapped
    form.

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
                "10.0.0.0/8, for example",
                field="trusted_proxies",
            ) from bad
        found.append(network)
        if isinstance(network, IPv4Network):
            mapped = f"::ffff:{network.network_address}/{96 + network.prefixlen}"
            found.append(IPv6Network(mapped))
    return tuple(found)


#: Type of a setting -> the end of the error for a value of another type.
_KINDS: dict[type, str] = {
    int: "a whole number; write 4, for example",
    float: "a number; write 0.5, for example",
}


def _typed(key: str, value: Any, kind: type) -> Any:
    if key in _CHOICES and value not in _CHOICES[key]:
        raise BadInput(
            f"{key} {value!r} is not allowed; choose one of {', '.join(_CHOICES[key])}", field=key
        )
    if kind is bool and isinstance(value, str):
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if value.lower() not in words:
            raise BadInput(
                f"{key} {value!r} is neither true nor false; write true or false", field=key
            )
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
            f"port {typed} is not a TCP port; give 0 (picks a free port) to 65535", field=key
        )
    if key == "accelerator_prices":
        prices_of(typed)
    if key == "trusted_proxies":
        networks_of(typed)
    if key in _AT_LEAST and not typed >= _AT_LEAST[key]:
        least = _AT_LEAST[key]
        raise BadInput(
            f"{key} {typed:g} would make the service refuse every request; give {least} or more",
            field=key,
        )
    if kind is int and typed < 0:
        raise BadInput(f"{key} {typed} is below 0; give 0 or more", field=key)
    if key.endswith("_seconds") and not 0 <= typed < math.inf:
        raise BadInput(f"{key} {typed:g} is not a duration; give seconds, 0 or more", field=key)
    if kind is float and not 0 <= typed < math.inf:
        raise BadInput(
            f"{key} {typed:g} is not a share; give 0 or more, such as 0.1 for 10 %", field=key
        )
