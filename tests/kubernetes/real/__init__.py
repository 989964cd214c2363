"""A real cluster under the same tests: what the emulator does within, done through HTTP.

``RealCluster`` stands before the API server that ``BRAIN_TEST_KUBECONFIG`` names and is held by
tests as ``Server`` is: it passes everything on, counts it, and breaks what tests want broken.
Nodes and kubelets are played (``Outside``), so that one needs neither; a cluster that has its own
is left alone: ours have a taint, and our pods a scheduler of their own.
"""

from tests.kubernetes.real.cluster import Ground, RealCluster, ground

__all__ = ["Ground", "RealCluster", "ground"]
