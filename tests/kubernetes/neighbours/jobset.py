"""JobSet played: its webhook's rules, its controller, and the controller of Jobs below it."""

import copy
import secrets
from collections.abc import Mapping
from typing import Any

from scaler.adapters.foreign import MANAGED_BY
from scaler.adapters.jobset import JOB, JOBSET
from tests.kubernetes.apiserver import Server
from tests.kubernetes.apiserver.core.api import Ask
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.hands import PODS, key_of
from tests.kubernetes.neighbours import install

JOBSETS, JOBS = (JOBSET.group, JOBSET.plural), (JOB.group, JOB.plural)
_SIZE = ("parallelism", "completions")
#: Fields of pods that may change while a JobSet is suspended.
_LATE = ("nodeSelector", "tolerations", "schedulingGates")


def jobset(
    *,
    workers: int = 1,
    suspended: bool = False,
    annotations: Mapping[str, str] | None = None,
    nodes: str = "1:8",
    cpu: str = "1500m",
    **job: Any,
) -> Json:
    """A JobSet that Brain may resize, of the form of JobSet's torchrun examples."""
    command = ["torchrun", f"--nnodes={nodes}", "--rdzv-backend=c10d", "train.py"]
    container = {"name": "pytorch", "image": "example.org/train:1", "command": command}
    container |= {"resources": {"requests": {"cpu": cpu}}}
    spec = {
        "parallelism": workers,
        "completions": workers,
        "template": {"spec": {"containers": [container]}},
    } | job
    replicated = {"name": "workers", "replicas": 1, "template": {"spec": spec}}
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.kind,
        "metadata": {
            "name": "digits",
            "namespace": "team",
            "annotations": {MANAGED_BY: "brain"} if annotations is None else dict(annotations),
        },
        "spec": {"suspend": suspended, "replicatedJobs": [replicated]},
    }


class PlayedJobSets:
    """``settle`` does what the controllers do, until there is nothing more to do.

    ``elastic``: the feature gate ElasticJobSet is on.
    """

    def __init__(self, server: Server, *, elastic: bool = False) -> None:
        self._server, self.elastic = server, elastic
        #: Nobody acts: the controllers have not noticed yet.
        self.paused = False
        if server.api.kinds.of_kind(JOBSET.api_version, JOBSET.kind) is None:
            install(server, "jobset.x-k8s.io_jobsets")
        server.api.webhooks["vjobset.kb.io"] = self._webhook

    def settle(self) -> None:
        """Make Jobs and pods as JobSets ask; delete pods that none asks for."""
        while not self.paused and any([self._jobs(), self._pods()]):
            pass

    def restart(self, name: str) -> None:
        """Make the Jobs anew, as the failure policy does."""
        for job in self._server.objects(JOB.plural, JOB.group):
            if job["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == name:
                self.lose_pods(job["metadata"]["namespace"])
                self._server.hands.delete(JOBS, key_of(job))

    def lose_pods(self, namespace: str) -> None:
        """Delete all pods there at once."""
        for pod in self._server.objects("pods", namespace=namespace):
            self._server.hands.delete(PODS, key_of(pod), grace_seconds=0)

    # The webhook.

    def _webhook(self, kind: Kind, old: Json | None, new: Json) -> str | None:
        """Return why it denies a change."""
        if kind.resource != JOBSETS or old is None:
            return None
        late = old["spec"].get("suspend") or new["spec"].get("suspend")
        was, now = (_fixed(each, self.elastic, late) for each in (old, new))
        for path in was:
            if was[path] != now[path]:
                return f"spec.{path}: Invalid value: field is immutable"
        if self.elastic:
            for role in new["spec"]["replicatedJobs"]:
                size = [role["template"]["spec"].get(each) for each in _SIZE]
                if size[0] != size[1]:
                    return "completions must be equal to parallelism for Elastic Indexed Jobs"
        return None

    # The controllers.

    def _jobs(self) -> bool:
        """Make each JobSet's Jobs, and have them suspended, and of its size, as it is."""
        changed = False
        for each in self._server.objects(JOBSET.plural, JOBSET.group):
            made = {job["metadata"]["name"]: job for job in self._owned(JOBS, each)}
            for role in each["spec"]["replicatedJobs"]:
                for index in range(role["replicas"]):
                    name = f"{each['metadata']['name']}-{role['name']}-{index}"
                    wanted = {"suspend": bool(each["spec"].get("suspend"))}
                    if name not in made:
                        self._server.hands.create(JOBS, _job(each, role, name, wanted))
                        changed = True
                        continue
                    if self.elastic:
                        wanted |= {k: role["template"]["spec"][k] for k in _SIZE}
                    changed |= self._write(made[name], wanted)
        return changed

    def _pods(self) -> bool:
        """Make a pod for each index of a Job; the highest indexes go first."""
        changed = False
        for job in self._server.objects(JOB.plural, JOB.group):
            size = 0 if job["spec"]["suspend"] else job["spec"].get("parallelism", 1)
            alive = {_index(pod): pod for pod in self._owned(PODS, job)}
            for index, pod in alive.items():
                if index >= size and "deletionTimestamp" not in pod["metadata"]:
                    self._server.hands.delete(PODS, key_of(pod))
                    changed = True
            for index in set(range(size)) - set(alive):
                self._server.hands.create(PODS, _pod(job, index))
                changed = True
        return changed

    def _write(self, job: Json, wanted: Json) -> bool:
        if wanted.items() <= job["spec"].items():
            return False
        api = self._server.api

        def write() -> None:
            kind = api.kinds.of_kind(JOB.api_version, JOB.kind)
            assert kind is not None
            stored = api.get(kind, *key_of(job))
            made = {**stored.obj, "spec": {**stored.obj["spec"], **wanted}}
            api.write(kind, stored, made, Ask(manager="jobset"), "")

        self._server.call(write)
        return True

    def _owned(self, resource: tuple[str, str], owner: Json) -> list[Json]:
        uid, namespace = owner["metadata"]["uid"], owner["metadata"]["namespace"]
        found = self._server.objects(resource[1], resource[0], namespace)
        return [
            obj
            for obj in found
            if any(ref["uid"] == uid for ref in obj["metadata"].get("ownerReferences") or ())
        ]


def _fixed(obj: Json, elastic: bool, late: object) -> Json:
    """Return what may not change."""
    spec = copy.deepcopy(obj["spec"])
    for role in spec["replicatedJobs"]:
        job = role["template"]["spec"]
        if elastic and job.get("completionMode", "Indexed") == "Indexed":
            for each in _SIZE:
                job.pop(each, None)
        if late:
            job["template"].pop("metadata", None)
            for each in _LATE:
                job["template"]["spec"].pop(each, None)
    return {each: spec.get(each) for each in ("replicatedJobs", "managedBy")}


def _job(owner: Json, role: Json, name: str, more: Json) -> Json:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": owner["metadata"]["name"],
        "jobset.sigs.k8s.io/jobset-uid": owner["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": role["name"],
    }
    spec = {"completionMode": "Indexed"} | copy.deepcopy(role["template"]["spec"])
    spec["template"].setdefault("metadata", {})["labels"] = labels
    return _beneath(owner, name, JOBSET.api_version, JOBSET.kind, labels) | {"spec": spec | more}


def _pod(job: Json, index: int) -> Json:
    name, template = job["metadata"]["name"], job["spec"]["template"]
    labels = template["metadata"]["labels"] | {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    named = f"{name}-{index}-{secrets.token_hex(3)[:5]}"
    made = _beneath(job, named, JOB.api_version, JOB.kind, labels)
    return made | {"spec": template["spec"] | {"restartPolicy": "OnFailure"}}


def _beneath(owner: Json, name: str, version: str, kind: str, labels: Json) -> Json:
    meta = owner["metadata"]
    reference = {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": dict(labels),
            "ownerReferences": [reference | {"controller": True}],
        }
    }


def _index(pod: Json) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
