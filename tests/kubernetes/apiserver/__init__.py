"""A Kubernetes API server in this process, for tests.

It keeps what an operator depends on as a real 1.36 server does, proved by replaying what one
answered (``tests/kubernetes/test_apiserver_transcript.py``). ``serving()`` starts one.
"""

from tests.kubernetes.apiserver.server import Server, serving

__all__ = ["Server", "serving"]
