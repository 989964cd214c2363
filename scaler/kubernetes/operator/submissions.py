"""Creates ElasticJobs from documents submitted to Brain, and Secrets with the jobs' environment."""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from brain import wire
from brain.errors import BadInput, BrainError, Conflict, NameTaken, NotFound
from brain.types.job import JobId
from brain.views import SubmitRequest
from scaler.kubernetes.kinds.documents import elastic_job, environment_of, environment_secret
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.fitting import offered
from scaler.kubernetes.runtime.cluster import SECRET, AlreadyExists, Cluster, Object

#: Annotation with the idempotency key of the submission that created the object.
SUBMISSION = f"{identity.DOMAIN}/submission"


class Submissions:
    """Creates ElasticJobs from documents, in the namespaces that ``allowed`` lists.

    The scaler creates the objects with its own permissions; an annotation records the submitter's
    name.
    """

    def __init__(
        self,
        cluster: Cluster,
        allowed: Sequence[str],
        take: Callable[[Object], None],
        nodes: Callable[[], Iterable[Object]],
    ) -> None:
        """``take`` sends a new object to Brain; the submitter gets its errors. ``nodes`` returns
        the cluster's nodes.
        """
        self._cluster, self._allowed, self._take = cluster, tuple(allowed), take
        self._nodes = nodes

    def submit(self, request: SubmitRequest) -> JobId | None:
        """Create the object and return its uid; None after a dry run.

        A repeated request returns the uid of the object that the first request created.

        Raises:
            BadInput: the cluster cannot run the document, or refuses the object.
            NotAllowed: a quota, a policy or a missing right forbids the object.
            NameTaken: another object has the name.
        """
        document = wire.job_document(request.document)
        self._check_namespace(document.project)
        wanted = elastic_job(document, [offered(node) for node in self._nodes()])
        annotations = {identity.OWNER: request.owner, SUBMISSION: request.key}
        wanted["metadata"]["annotations"] = {k: v for k, v in annotations.items() if v}
        read_elastic_job(wanted)
        made = self._made_before(wanted) if not request.dry_run else None
        if made is None:
            return self._make(wanted, environment_of(document), request.dry_run)
        self._keep_environment(made, environment_of(document))
        self._take(made)
        return JobId(made["metadata"]["uid"])

    def _make(
        self, wanted: dict[str, Any], environment: dict[str, str], dry_run: bool
    ) -> JobId | None:
        made = self._create(wanted, dry_run)
        if dry_run:
            return None
        try:
            self._keep_environment(made, environment)
            self._take(made)
        except BrainError:
            metadata = made["metadata"]
            self._cluster.delete(JOB, metadata["namespace"], metadata["name"], uid=metadata["uid"])
            raise
        return JobId(made["metadata"]["uid"])

    def _check_namespace(self, project: str) -> None:
        if project not in self._allowed:
            allowed = ", ".join(self._allowed) or "none"
            raise BadInput(
                f"jobs of project {project!r} run in the namespace of this name, in which the "
                f"scaler may not create jobs; choose one of these projects: {allowed}; or start "
                f"the scaler with --submit-to {project}",
                field="project",
            )

    def _made_before(self, wanted: dict[str, Any]) -> Object | None:
        """Return the object that an earlier attempt of this request created; else None."""
        metadata = wanted["metadata"]
        if SUBMISSION not in metadata["annotations"]:
            return None
        try:
            there = self._cluster.get(JOB, metadata["namespace"], metadata["name"])
        except NotFound:
            return None
        known = there["metadata"].get("annotations") or {}
        return there if metadata["annotations"].items() <= known.items() else None

    def _create(self, wanted: dict[str, Any], dry_run: bool) -> Object:
        namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        try:
            return self._cluster.create(JOB, wanted, dry_run=dry_run)
        except AlreadyExists:
            there = self._cluster.get(JOB, namespace, name)
            phase = (there.get("status") or {}).get("phase") or "not reconciled yet"
            raise NameTaken(
                f"ElasticJob {namespace}/{name} exists already ({phase}); choose another name, or "
                f"delete it: kubectl -n {namespace} delete elasticjob {name}"
            ) from None
        except NotFound as why:
            raise BadInput(
                f"project {namespace!r} has no namespace in the cluster, or the custom "
                f"resource definitions are not installed: {why}",
                field="project",
            ) from why

    def _keep_environment(self, made: Object, values: dict[str, str]) -> None:
        if not values:
            return
        metadata = made["metadata"]
        namespace, name = metadata["namespace"], environment_secret(metadata["name"])
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        secret: dict[str, Any] = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": identity.selector(metadata["name"]),
                "ownerReferences": [identity.owner(metadata["name"], metadata["uid"])],
            },
            "data": data,
        }
        try:
            full = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", **secret}
            self._cluster.create(SECRET, full)
        except AlreadyExists:
            there = self._cluster.get(SECRET, namespace, name)
            labels = there["metadata"].get("labels") or {}
            if not identity.selector(metadata["name"]).items() <= labels.items():
                raise Conflict(
                    f"Secret {namespace}/{name}, which should get the job's environment, belongs "
                    "to another object; delete the Secret, or choose another name for the job"
                ) from None
            # An earlier job of this name owns the existing Secret, which goes with that job; this
            # one stays.
            old = dict.fromkeys(there.get("data") or {})
            self._cluster.merge(SECRET, namespace, name, {**secret, "data": old | data})
