"""Facts that an operator in a pod reads from its own pod."""

import os
from collections.abc import Mapping
from dataclasses import replace

from brain.errors import BadInput, NotAllowed, NotFound
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.runtime.cluster import POD, Cluster

#: Value of ``--agent-image``: the image of the operator's own container.
OWN = "own"
#: Variables in which the downward API names this pod, and the container of the operator.
_POD, _CONTAINER = "POD_NAME", "scaler"


def injected(
    said: AgentInjection | None,
    cluster: Cluster,
    namespace: str,
    environ: Mapping[str, str] = os.environ,
) -> AgentInjection | None:
    """Return how the agent gets into the containers of jobs.

    If the option names the image ``own``, the result has the image of the operator's own pod. So a
    kustomization that replaces the operator's image need not change the operator's arguments.

    Raises:
        BadInput: this process does not run in a pod, or may not read its pod.
    """
    if said is None or said.image != OWN:
        return said
    name = environ.get(_POD)
    if not name:
        raise _unknown(f"{_POD} is not set")
    try:
        pod = cluster.get(POD, namespace, name)
    except (NotAllowed, NotFound) as why:
        raise _unknown(f"pod {name} in {namespace} cannot be read: {why}") from why
    containers = pod["spec"]["containers"]
    # A service mesh may have put its own container first.
    mine = next((each for each in containers if each["name"] == _CONTAINER), containers[0])
    return replace(said, image=mine["image"])


def _unknown(why: str) -> BadInput:
    return BadInput(
        f"--agent-image own: {why}; grant `get` on pods in the operator's namespace and set "
        f"{_POD} through the downward API, or give --agent-image the name of an image",
        field="agent-image",
    )
