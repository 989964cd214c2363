"""The way to a cluster that a kubeconfig, or a pod's own account, names."""

from scaler.kubernetes.machinery.cluster.transport import Transport


def connect(
    *, kubeconfig: str | None = None, context: str | None = None, connections: int = 64
) -> Transport:
    """A transport by a kubeconfig file, or by the pod's service account where none is named.

    Raises:
        BadInput: there is no usable configuration; the message says what was looked at.
    """
    from scaler.kubernetes.machinery.cluster.official import OfficialTransport, configuration

    return OfficialTransport(configuration(kubeconfig, context), connections=connections)
