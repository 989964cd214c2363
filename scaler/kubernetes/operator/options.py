"""Turns the command line into the operator's options."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brain.client import TokenFile
from brain.errors import BadInput
from brain.types.job import PolicyMode
from scaler.kubernetes.pods import ports
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.replicas.losses import PATIENCE
from scaler.kubernetes.runtime import ElectionTerms
from scaler.pace import Pace

#: Value of ``--brain`` for an installation without a Brain.
NO_BRAIN = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """Options of ``brain-scale --kubernetes``."""

    #: URL of Brain; None with ``--brain none``: the operator then only admits and heals jobs.
    url: str | None
    token: str | TokenFile
    home: Path
    pool: str = "kubernetes"
    #: Namespaces to serve; None for all.
    namespaces: tuple[str, ...] = ()
    #: Namespaces in which the operator may create submitted jobs.
    submit_to: tuple[str, ...] = ()
    #: Namespace of this operator's lease.
    own_namespace: str = "default"
    kubeconfig: str | None = None
    context: str | None = None
    #: URL at which pods reach Brain; None for the URL that this process uses.
    pods_url: str | None = None
    injection: AgentInjection | None = None
    mode: PolicyMode = PolicyMode.SHADOW
    #: host:port for probes and metrics; None to serve none.
    metrics: str | None = None
    workers: int = 4
    in_flight: int = 8
    poll_seconds: float = 2.0
    lease: ElectionTerms | None = None
    #: False skips the leader election, because no other operator runs.
    elect: bool = True
    host_ports: tuple[int, int] = (ports.FIRST, ports.LAST)
    #: Once a node has not been ready for this many seconds, its replicas are replaced.
    lost_node_seconds: float = PATIENCE.total_seconds()
    #: Slower than a local scaler's, because one process reports hundreds of jobs.
    pace: Pace = field(default_factory=lambda: Pace(repeat=30.0))


def operator_options(said: argparse.Namespace, home: Path) -> OperatorOptions:
    """Read the options of ``brain-scale --kubernetes``, and the token.

    Raises:
        BadInput: an option cannot be used; the message names the option.
        NotSignedIn: the content of the token's file is no token.
        OSError: the token's file cannot be read.
    """
    url = None if said.url == NO_BRAIN else said.url
    token = "" if url is None else TokenFile(said.token_file or home / "scaler.token")
    if url is None and said.submit_to:
        raise BadInput(
            "--submit-to needs a Brain that takes submissions; leave --submit-to out, or give "
            "--brain a URL",
            field="submit-to",
        )
    return OperatorOptions(
        url=url,
        token=token,
        home=home,
        pool=said.pool or "kubernetes",
        namespaces=tuple(said.namespace),
        submit_to=_submit_to(said.submit_to, said.namespace),
        own_namespace=said.own_namespace,
        kubeconfig=said.kubeconfig,
        context=said.context,
        pods_url=said.pods_url,
        injection=_injection(said.agent_image, said.agent_python),
        mode=PolicyMode(said.mode),
        metrics=said.metrics,
        workers=said.workers,
        in_flight=max(2, said.in_flight),
        poll_seconds=said.poll_seconds,
        lease=_lease(said.own_namespace, said.lease_seconds),
        host_ports=_ports(said.host_ports),
        lost_node_seconds=max(0.0, said.lost_node_seconds),
    )


def _submit_to(named: Sequence[str], served: Sequence[str]) -> tuple[str, ...]:
    for namespace in named:
        if served and namespace not in served:
            raise BadInput(
                f"--submit-to {namespace} is not one of the namespaces that this operator serves "
                f"({', '.join(served)}); add --namespace {namespace}",
                field="submit-to",
            )
    return tuple(named)


def _lease(namespace: str, seconds: float) -> ElectionTerms:
    if seconds < 1.0:
        raise BadInput(
            f"--lease-seconds {seconds:g} is too short for the delays of a network; give at least "
            "1, for example 7",
            field="lease-seconds",
        )
    return ElectionTerms(
        namespace=namespace,
        lease_seconds=seconds,
        renew_seconds=0.7 * seconds,
        retry_seconds=0.15 * seconds,
    )


def _injection(image: str | None, python: str | None) -> AgentInjection | None:
    if python is not None:
        return AgentInjection(image=image, python=python)
    return AgentInjection(image=image) if image is not None else None


def _ports(said: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)-(\d+)", said)
    if not found or not 1024 <= int(found[1]) <= int(found[2]) <= 65535:
        raise BadInput(
            f"--host-ports {said!r} is not a range of ports; give 20000-29999, for example",
            field="host-ports",
        )
    return int(found[1]), int(found[2])
