"""Neighbours of Brain in a cluster: their own CRDs, and their webhooks and controllers played.

The CRDs are those of kubernetes-sigs/jobset and kubernetes-sigs/kueue without descriptions
(Apache License 2.0, "Copyright The Kubernetes Authors"). Webhooks and controllers are written anew
after what the projects document; no line of theirs is here.
"""

import lzma
from pathlib import Path

import yaml

from tests.kubernetes.apiserver import Server


def install(server: Server, *names: str) -> None:
    """Serve the kinds of CRDs, by the name of their file."""
    for name in names:
        text = lzma.decompress((Path(__file__).parent / f"{name}.yaml.xz").read_bytes())
        definition = yaml.load(text, yaml.CSafeLoader)
        server.call(lambda definition=definition: server.api.install(definition))
