"""The addresses at which other machines reach this one."""

import socket

from brain.errors import BadInput
from launcher.workers.processes.process import free_port


def host(local_addr: str | None, endpoint: str) -> str:
    """Return the address at which peers reach this agent.

    Raises:
        BadInput: ``--local-addr`` belongs to another machine, or there is no route to
        ``--rdzv-endpoint``.
    """
    if not local_addr:
        return towards(endpoint)
    try:
        free_port(local_addr)
    except BadInput as foreign:
        raise BadInput(
            f"--local-addr={local_addr} is not an address of this machine; give one of this "
            "machine's addresses, or drop the flag",
            field="local_addr",
        ) from foreign
    return local_addr


def towards(endpoint: str) -> str:
    """Return this machine's address on the route to the endpoint; loopback if the endpoint is
    loopback.

    Raises:
        BadInput: there is no route to the endpoint.
    """
    if not endpoint:
        return "127.0.0.1"
    name, _, port = endpoint.rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            name.strip("[]"), int(port or 0) or 1, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing; the kernel picks the way there
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as cannot:
        raise BadInput(
            f"--rdzv-endpoint={endpoint} is not a host:port that this machine can reach: {cannot}",
            field="rdzv_endpoint",
        ) from cannot
