"""An operator answers for a pod only if it knows the pod's job."""

from typing import cast

import pytest

from brain.errors import Unavailable
from brain.types.job import JobId
from brain.views import PodRequest
from scaler.kubernetes.operator.staying import ask_for_pod
from scaler.kubernetes.runtime.cluster import Cluster


def test_an_operator_without_the_job_says_nothing_of_its_pods() -> None:
    request = PodRequest(job=JobId("j"), replica=0)
    with pytest.raises(Unavailable, match="knows no ElasticJob with the uid j"):
        ask_for_pod(cast(Cluster, None), None, request)
