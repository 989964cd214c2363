"""Functions of the official client, which is loaded at the moment that one of these is called."""

from collections.abc import Sequence

from scaler.kubernetes.runtime.cluster.transport import Transport


def connect(
    *, kubeconfig: str | None = None, context: str | None = None, connections: int = 64
) -> Transport:
    """A transport by a kubeconfig file, or by the pod's service account where none is named.

    Raises:
        BadInput: there is no usable configuration; the message says what was looked at.
    """
    from scaler.kubernetes.runtime.cluster.official import OfficialTransport, configuration

    return OfficialTransport(configuration(kubeconfig, context), connections=connections)


def unknown_pod_fields(spec: object, path: str) -> Sequence[tuple[str, str]]:
    """Fields of a pod's spec at ``path`` that no pod has, each with the name nearest to it.

    The nearest name is empty where none is near: the field may be newer than what we know.
    """
    from scaler.kubernetes.runtime.cluster.official import unknown_fields

    return list(unknown_fields(spec, "V1PodSpec", path))
