"""The parameters of torchrun's rendezvous, read and checked."""

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brain.errors import BadInput
from launcher.command.entrypoint import Entrypoint
from launcher.coordinator.topology.asked import path_of
from launcher.values.config import LaunchConfig

#: Port of an endpoint that names none, as for c10d.
DEFAULT_PORT = 29400
_NAMES = (
    "unit",
    "topology",
    "rank",
    "join_timeout",
    "close_timeout",
    "read_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
)
#: Parameters of c10d that are accepted but have no effect here.
_IDLE = ("last_call_timeout", "heartbeat_timeout", "is_host", "store_type", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousSettings:
    """The rendezvous settings of one torchrun agent."""

    config: LaunchConfig
    #: Seconds to wait for a world; ``close_seconds`` for the other agents at the end;
    #: ``read_seconds`` for the store.
    join_seconds: float
    close_seconds: float
    read_seconds: float
    #: Requested GROUP_RANK; None for any.
    rank: int | None


def settings(
    *,
    endpoint: str,
    run_id: str,
    min_nodes: int,
    max_nodes: int,
    local_addr: str | None,
    conf: Mapping[str, Any],
    environment: Mapping[str, str],
) -> RendezvousSettings:
    """Read the settings from torchrun's parameters.

    Raises:
        BadInput: a value cannot be used; the message names the field, the value and the remedy.
    """
    _check_names(conf)
    unit = _whole(conf, "unit", 1, least=1)
    if unit > max_nodes:
        raise BadInput(
            f"--rdzv-conf: unit={unit} is more than --nnodes={min_nodes}:{max_nodes} allows; "
            "give a unit that fits, or more nodes",
            field="unit",
        )
    if not run_id:
        raise BadInput("--rdzv-id is empty; give every agent the id of the job", field="rdzv_id")
    rank = _whole(conf, "rank", -1, least=-1)
    config = LaunchConfig(
        entrypoint=Entrypoint(argv=(), name="torchrun", python=False, interpreter=sys.executable),
        nodes_min=min_nodes,
        nodes_max=max_nodes,
        unit=unit,
        topology=path_of(str(conf.get("topology") or environment.get("BRAIN_TOPOLOGY") or "")),
        run_id=run_id,
        job=run_id,
        replica=-1,
        rdzv_backend="brain",
        rdzv_endpoint=_endpoint(endpoint),
        rdzv_conf={name: str(conf[name]) for name in _NAMES if name in conf},
        local_addr=local_addr,
        # torchrun counts restarts, each agent its own.
        max_restarts=sys.maxsize,
        # A thread gets no signals; the handler passes on what torchrun gets.
        signals=(),
        directory=os.getcwd(),
        home=os.path.realpath(os.path.expanduser(environment.get("BRAIN_HOME") or "~/.brain")),
        probe=False,
    )
    return RendezvousSettings(
        config=config,
        join_seconds=_seconds(conf, "join_timeout", 600.0),
        close_seconds=_seconds(conf, "close_timeout", 30.0),
        read_seconds=_seconds(conf, "read_timeout", 60.0),
        rank=None if rank < 0 else rank,
    )


def _check_names(conf: Mapping[str, Any]) -> None:
    for name in conf:
        if name not in (*_NAMES, *_IDLE):
            near = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_NAMES)}"
            raise BadInput(f"--rdzv-conf: {name}={conf[name]} is not known; {hint}", field=name)


def _endpoint(said: str) -> str:
    """Return ``host:port``, with ``DEFAULT_PORT`` if the endpoint names no port."""
    host, _, port = said.rpartition(":") if ":" in said else (said, "", "")
    if said.endswith("]"):
        host, port = said, ""
    if not host or not (port or "0").isdecimal() or int(port or 0) > 65535:
        raise BadInput(
            f"--rdzv-endpoint={said} is not HOST:PORT; give every agent the address of the same "
            f"machine, for example {said or 'node0'}:{DEFAULT_PORT}",
            field="rdzv_endpoint",
        )
    return f"{host}:{port or DEFAULT_PORT}"


def _whole(conf: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    said = conf.get(name, default)
    try:
        value = int(said)
    except ValueError:
        value = least - 1
    if value < least:
        raise BadInput(
            f"--rdzv-conf: {name}={said} is not a whole number of at least {max(least, 0)}",
            field=name,
        )
    return value


def _seconds(conf: Mapping[str, Any], name: str, default: float) -> float:
    said = conf.get(name, default)
    try:
        value = float(said)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadInput(
            f"--rdzv-conf: {name}={said} is not a number of seconds; give {default:g}, for example",
            field=name,
        )
    return value
