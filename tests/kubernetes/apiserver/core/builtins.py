"""The built-in kinds that an operator meets, with how their lists merge."""

from typing import Any

from tests.kubernetes.apiserver.core.kinds import METADATA, Json, Kind

_FREE: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _keyed(*keys: str, merge: str = "", there: bool = False, **properties: Json) -> Json:
    """Return a list whose items are told apart by ``keys``."""
    return {
        "type": "array",
        "items": {**_FREE, "properties": properties},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        **({"x-kubernetes-patch-merge-key": merge} if merge else {}),
        **({"x-always-there": True} if there else {}),
    }


def _object(*, there: bool = False, **properties: Json) -> Json:
    return {**_FREE, "properties": properties, **({"x-always-there": True} if there else {})}


_ATOMIC: Json = {**_FREE, "x-kubernetes-map-type": "atomic"}
_TCP: Json = {"type": "string", "default": "TCP"}


def _containers(there: bool = False) -> Json:
    return _keyed(
        "name",
        there=there,
        env=_keyed("name"),
        ports=_keyed("containerPort", "protocol", merge="containerPort", protocol=_TCP),
        volumeMounts=_keyed("mountPath"),
        volumeDevices=_keyed("devicePath"),
    )


POD_SPEC = _object(
    there=True,
    containers=_containers(there=True),
    initContainers=_containers(),
    ephemeralContainers=_containers(),
    volumes=_keyed("name"),
    imagePullSecrets=_keyed("name"),
    hostAliases=_keyed("ip"),
    schedulingGates=_keyed("name"),
    resourceClaims=_keyed("name"),
    topologySpreadConstraints=_keyed("topologyKey", "whenUnsatisfiable", merge="topologyKey"),
    nodeSelector=_ATOMIC,
)
_CONDITIONS = _keyed("type")
_STATUS = _object(there=True, conditions=_CONDITIONS)
_TEMPLATE = _object(there=True, metadata=METADATA, spec=POD_SPEC)


def _schema(**properties: Json) -> Json:
    return {**_FREE, "properties": {"metadata": METADATA, **properties}}


def _with_template() -> Json:
    spec = _object(there=True, template=_TEMPLATE, selector=_ATOMIC)
    return _schema(spec=spec, status=_STATUS)


_PLAIN = _schema(spec=_object(there=True), status=_STATUS)
_SERVICE = _schema(
    spec=_object(
        there=True,
        ports=_keyed("port", "protocol", merge="port", protocol=_TCP),
        selector=_ATOMIC,
    ),
    status=_STATUS,
)
_NODE = _schema(
    spec=_object(there=True, taints={"type": "array"}),
    status=_object(there=True, conditions=_CONDITIONS, addresses=_keyed("type")),
)
_DEFINITION = _schema(
    spec=_object(there=True, names=_object(there=True), versions={"x-always-there": False}),
    status=_object(there=True, conditions=_CONDITIONS),
)
_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
_EVENT_FIELDS = {
    f"involvedObject.{field}": f"involvedObject.{field}"
    for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {"reason": "reason", "type": "type", "reportingComponent": "reportingComponent"}
_POD_FIELDS = {
    field: field
    for field in (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )
}


def _k(group: str, version: str, plural: str, kind: str, **more: Any) -> Kind:
    more.setdefault("schema", _PLAIN)
    return Kind(group, version, plural, kind, **{"singular": kind.lower(), **more})


def _workload(group: str, plural: str, kind: str, short: str, *, scale: bool = True) -> Kind:
    return _k(
        group,
        "v1",
        plural,
        kind,
        short_names=(short,) if short else (),
        categories=("all",),
        schema=_with_template(),
        has_status=True,
        counts_generation=True,
        scale=_SCALE if scale else None,
    )


CORE = (
    _k("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), has_status=True,
       fields={"status.phase": "status.phase"}, doors={"finalize": ("Namespace", "", "v1")}),
    _k("", "v1", "pods", "Pod", short_names=("po",), categories=("all",), has_status=True,
       counts_generation=True, schema=_schema(spec=POD_SPEC, status=_object(
           there=True, conditions=_CONDITIONS, podIPs=_keyed("ip"), hostIPs={"type": "array"})),
       fields=_POD_FIELDS, returns_deleted=True, doors={
           "binding": ("Binding", "", "v1"),
           "eviction": ("Eviction", "policy", "v1"),
           "log": ("Pod", "", "v1"),
           "resize": ("Pod", "", "v1"),
       }),
    _k("", "v1", "services", "Service", short_names=("svc",), categories=("all",),
       schema=_SERVICE, has_status=True, returns_deleted=True),
    _k("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    _k("", "v1", "secrets", "Secret", fields={"type": "type"}),
    _k("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True),
    _k("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), has_status=True,
       schema=_NODE, fields={"spec.unschedulable": "spec.unschedulable"}),
    _k("", "v1", "events", "Event", short_names=("ev",), fields=_EVENT_FIELDS),
    _k("", "v1", "endpoints", "Endpoints", short_names=("ep",), put_creates=True),
    _k("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",),
       has_status=True, returns_deleted=True),
    _k("", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), has_status=True,
       returns_deleted=True),
    _k("", "v1", "limitranges", "LimitRange", short_names=("limits",)),
)  # fmt: skip

GROUPED = (
    _workload("apps", "deployments", "Deployment", "deploy"),
    _workload("apps", "statefulsets", "StatefulSet", "sts"),
    _workload("apps", "replicasets", "ReplicaSet", "rs"),
    _workload("apps", "daemonsets", "DaemonSet", "ds", scale=False),
    _workload("batch", "jobs", "Job", "", scale=False),
    _k("coordination.k8s.io", "v1", "leases", "Lease", put_creates=True),
    _k("events.k8s.io", "v1", "events", "Event", short_names=("ev",), twin=("", "events"),
       renames={
           "regarding": "involvedObject",
           "note": "message",
           "reportingController": "reportingComponent",
           "deprecatedSource": "source",
           "deprecatedFirstTimestamp": "firstTimestamp",
           "deprecatedLastTimestamp": "lastTimestamp",
           "deprecatedCount": "count",
       }),
    _k("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",),
       has_status=True, counts_generation=True),
    _k("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False,
       short_names=("pc",)),
    _k("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    _k("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",),
       counts_generation=True),
    _k("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler",
       short_names=("hpa",), has_status=True),
    _k("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    _k("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    _k("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    _k("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding",
       namespaced=False),
    _k("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies",
       "ValidatingAdmissionPolicy", namespaced=False, has_status=True, counts_generation=True),
    _k("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings",
       "ValidatingAdmissionPolicyBinding", namespaced=False, counts_generation=True),
    _k("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
       namespaced=False, short_names=("crd", "crds"), has_status=True, counts_generation=True,
       schema=_DEFINITION),
)  # fmt: skip

#: Questions that are answered and not kept.
REVIEWS = tuple(
    _k("authorization.k8s.io", "v1", plural, kind, namespaced=plural.startswith("local"),
       verbs=("create",))
    for plural, kind in (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
        ("localsubjectaccessreviews", "LocalSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    )
)  # fmt: skip

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

#: What metrics-server adds, where a test wants it.
METRICS = (
    _k("metrics.k8s.io", "v1beta1", "pods", "PodMetrics"),
    _k("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False),
)
