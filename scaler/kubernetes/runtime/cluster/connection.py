"""Functions that need the official client, which is imported only when one of them is called."""

from collections.abc import Sequence

from scaler.kubernetes.runtime.cluster.transport import Transport


def connect(
    *, kubeconfig: str | None = None, context: str | None = None, connections: int = 64
) -> Transport:
    """Build a transport from a kubeconfig file, or from the pod's service account if none is named.

    Raises:
        BadInput: there is no usable configuration; the message names the sources.
    """
    from scaler.kubernetes.runtime.cluster.official import OfficialTransport, configuration

    return OfficialTransport(configuration(kubeconfig, context), connections=connections)


def unknown_pod_fields(spec: object, path: str) -> Sequence[tuple[str, str]]:
    """Return the fields of a pod spec that no pod has, each with the most similar known name.

    ``path`` is the path of the spec, with which the returned fields begin. The known name is empty
    if none is similar: then the field may be newer than this client.
    """
    from scaler.kubernetes.runtime.cluster.official import unknown_fields

    return list(unknown_fields(spec, "V1PodSpec", path))
