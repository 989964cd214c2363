"""Builders of ElasticJobs and ScalePlans as people write them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.clusters import here, namespace

Object = dict[str, Any]

#: The example of the article, whose indentation was restored.
SEED = """\
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata:
  name: torch-mnist-single-job-testing-1
  namespace: dlrover
  labels:
    some-label: some-value
spec:
  distributionStrategy: AllreduceStrategy
  optimizeMode: cluster
  replicaSpecs:
    worker:
      replicas: 5
      template:
        spec:
          restartPolicy: Always
          containers:
            - name: main
              image: registry.cn-hangzhou.aliyuncs.com/intell-ai/dlrover:pytorch-example
              imagePullPolicy: Always
              command:
                - /bin/bash
                - -c
                - "dlrover-run --network-check --nnodes=1:10 --nproc_per_node=1 --max_restarts=10 \
examples/pytorch/mnist/cnn_train.py --num_epochs 500 --training_data /data/mnist_png/training/ \
--validation_data /data/mnist_png/testing/"
              resources:
                limits:
                  cpu: 2
                  memory: 3Gi
                  tencent.com/vcuda-core: 100
                requests:
                  cpu: 2
                  memory: 3Gi
                  tencent.com/vcuda-core: 100
"""

DEPLOY = Path(__file__).parents[2] / "deploy"


def seed() -> Object:
    """The article's job."""
    found: Object = yaml.safe_load(SEED)
    found["metadata"]["namespace"] = namespace("dlrover")
    template = found["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"] = here(template["spec"])
    return found


def job(
    *command: str, resources: Object | None = None, spec: Object | None = None, **worker: Any
) -> Object:
    """A job ``digits`` of workers that run ``command``; ``worker`` are fields of their role."""
    container: Object = {"name": "main", "image": "digits:1"}
    if command:
        container["command"] = list(command)
    if resources:
        devices = {name: amount for name, amount in resources.items() if "/" in name}
        container["resources"] = {"requests": resources, "limits": devices}
    role = {"template": {"spec": here({"containers": [container]})}, **worker}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "digits", "namespace": namespace("team")},
        "spec": {"replicaSpecs": {"worker": role}, **deepcopy(spec or {})},
    }


def plan(spec: Object, **metadata: Any) -> Object:
    """A ScalePlan ``bigger``."""
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ScalePlan",
        "metadata": {"name": "bigger", "namespace": namespace("team"), **metadata},
        "spec": spec,
    }


def main_of(job: Object) -> Object:
    """The main container of a job's workers."""
    found: Object = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    return found
