"""The chart, rendered: what Helm would send keeps the rules of a restricted namespace and ours."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain.settings import settings_from, settings_in_environment
from deploy import render
from deploy.gotemplate import Chart, TemplateError, merged
from scaler.adapters import __main__ as adapters_of
from scaler.cli import _parser

DEPLOY = Path(render.__file__).parent
Object = dict[str, Any]
CHART = Chart(render.CHART)
VALUES: dict[str, Object] = {
    "as it stands": {},
    "bundled database": {"database": {"kind": "bundled"}},
    "two namespaces": {"namespaces": ["blue", "green"]},
    "everything": {
        "monitoring": {"enabled": True},
        "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": ["registry"]},
        "brain": {"settings": {"tick_seconds": "1"}, "allowedHosts": ["brain.example"]},
        "scaler": {"arguments": ["--verbose"], "nodeSelector": {"pool": "infra"}},
        "database": {"kind": "bundled", "bundled": {"storageClass": "fast"}},
        "adapters": {"enabled": True, "pool": "research"},
    },
    "traces": {
        "brain": {
            "settings": {"traces": "true"},
            "environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel.monitoring.svc:4318"},
        },
        "networkPolicy": {"brainPorts": [4318]},
    },
    "submissions to a namespace": {"scaler": {"submitTo": ["team"]}},
    "without network policy, kinds and injection": {
        "networkPolicy": {"enabled": False},
        "crds": {"migrate": False},
        "scaler": {"inject": False},
    },
}


@cache
def case_of(name: str) -> list[Object]:
    """The objects of one of the cases; nobody changes them."""
    return CHART.render(VALUES[name])


def rendered(**values: Any) -> list[Object]:
    return CHART.render(values) if values else case_of("as it stands")


def one(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def pods(objects: list[Object]) -> Iterator[Object]:
    """Every pod's spec."""
    for obj in objects:
        if "template" in obj.get("spec", {}):
            yield obj["spec"]["template"]["spec"]


@pytest.mark.parametrize("case", VALUES)
def test_every_pod_may_run_in_a_restricted_namespace(case: str) -> None:
    for pod in pods(case_of(case)):
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"]["type"] == "RuntimeDefault"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in pod["containers"]:
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False
            assert inner["capabilities"] == {"drop": ["ALL"]}
            assert inner["readOnlyRootFilesystem"] is True
        kinds = (
            {next(key for key in volume if key != "name") for volume in pod["volumes"]}
            if pod.get("volumes")
            else set()
        )
        assert kinds <= {"emptyDir", "secret", "configMap", "projected"}


@pytest.mark.parametrize("case", VALUES)
def test_every_pod_is_limited_probed_and_free_of_service_variables(case: str) -> None:
    # A Service called `brain` puts BRAIN_PORT=tcp://… into pods, which is no port to listen on.
    for pod in pods(case_of(case)):
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            if pod.get("restartPolicy") != "Never":
                assert {"livenessProbe", "readinessProbe"} <= container.keys()


@pytest.mark.parametrize("case", VALUES)
def test_names_are_unique_and_every_object_is_whole(case: str) -> None:
    objects = case_of(case)
    names = [
        (o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])
        for o in objects
    ]
    assert len(names) == len(set(names))
    assert all(isinstance(o["metadata"]["name"], str) for o in objects)


@pytest.mark.parametrize("case", VALUES)
def test_whatever_an_object_points_at_is_there(case: str) -> None:
    objects = case_of(case)
    accounts = {o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"}
    roles = {(o["kind"], o["metadata"]["name"]) for o in objects if o["kind"].endswith("Role")}
    for binding in (o for o in objects if o["kind"].endswith("RoleBinding")):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        assert {each["name"] for each in binding["subjects"]} <= accounts
    labels = [
        o["spec"]["template"]["metadata"]["labels"]
        for o in objects
        if "template" in o.get("spec", {})
    ]
    for service in (o for o in objects if o["kind"] == "Service"):
        assert any(service["spec"]["selector"].items() <= each.items() for each in labels)
    for each in (o for o in objects if o["kind"] in ("Deployment", "StatefulSet")):
        selected = each["spec"]["selector"]["matchLabels"]
        assert selected.items() <= each["spec"]["template"]["metadata"]["labels"].items()


def test_there_is_one_brain_and_two_scalers_and_nobody_acts_without_being_told() -> None:
    objects = rendered()
    brain, scaler = one(objects, "Deployment", "brain"), one(objects, "Deployment", "brain-scaler")
    assert (brain["spec"]["replicas"], brain["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert scaler["spec"]["replicas"] == 2
    (container,) = brain["spec"]["template"]["spec"]["containers"]
    assert {"name": "BRAIN_POLICY_MODE", "value": "shadow"} in container["env"]


@pytest.mark.parametrize("case", VALUES)
def test_the_brains_environment_is_settings_that_exist(case: str) -> None:
    brain = one(case_of(case), "Deployment", "brain")
    (container,) = brain["spec"]["template"]["spec"]["containers"]
    literal = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    named = {name for name in literal if name.startswith("BRAIN_")}
    found = settings_in_environment(literal)
    assert len(found) == len(named)
    assert settings_from(found).host == "0.0.0.0"


def test_traces_get_their_variables_and_their_way_out() -> None:
    objects = case_of("traces")
    (container,) = one(objects, "Deployment", "brain")["spec"]["template"]["spec"]["containers"]
    literal = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    assert settings_from(settings_in_environment(literal)).traces
    assert literal["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel.monitoring.svc:4318"
    assert {"ports": [{"port": 4318}]} in one(objects, "NetworkPolicy", "brain")["spec"]["egress"]


@pytest.mark.parametrize("case", VALUES)
def test_the_scalers_arguments_are_ones_that_it_takes(case: str) -> None:
    scaler = one(case_of(case), "Deployment", "brain-scaler")["spec"]["template"]["spec"]
    (container,) = scaler["containers"]
    given = [*container["command"][1:], *container["args"]]
    options = _parser().parse_args([word for word in given if word != "--verbose"])
    assert options.kubernetes
    assert options.mode == "shadow"
    assert options.metrics == ":8081"
    assert bool(options.agent_image) == (not case.startswith("without"))


def test_the_adapters_arguments_are_ones_that_they_take_and_a_value_starts_them() -> None:
    names = [o["metadata"]["name"] for o in rendered()]
    assert "brain-adapters" not in names
    adapters = one(case_of("everything"), "Deployment", "brain-adapters")["spec"]["template"]
    (container,) = adapters["spec"]["containers"]
    assert container["command"] == ["python3", "-P", "-m", adapters_of.__name__.rpartition(".")[0]]
    options = adapters_of._parser().parse_args(container["args"])
    assert (options.pool, options.metrics) == ("research", ":8081")
    assert str(options.token_file.parent) in {m["mountPath"] for m in container["volumeMounts"]}


def test_probes_use_a_name_that_the_service_answers_to() -> None:
    (container,) = one(rendered(), "Deployment", "brain")["spec"]["template"]["spec"]["containers"]
    probes = [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {p["httpGet"]["httpHeaders"][0]["value"] for p in probes} == {"localhost"}
    assert {p["httpGet"]["path"] for p in probes} == {"/livez"}


def test_for_a_list_of_namespaces_there_is_no_right_in_others_but_to_see_nodes() -> None:
    objects = rendered(namespaces=["blue", "green"])
    role = one(objects, "ClusterRole", "brain-brain-scaler")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"get", "list", "watch"}
    inside = [
        o["metadata"]["namespace"] for o in objects if o["metadata"]["name"] == "brain-scaler-jobs"
    ]
    assert sorted(inside) == ["blue", "blue", "green", "green"]
    scaler = one(objects, "Deployment", "brain-scaler")["spec"]["template"]["spec"]
    assert {"--namespace=blue", "--namespace=green"} <= set(scaler["containers"][0]["args"])


def test_names_of_digits_stay_names() -> None:
    objects = rendered(
        namespaces=["2026"],
        tokens={"secret": "1e3"},
        database={"kind": "external", "secret": "0x1f"},
        image={"pullSecrets": ["77"]},
    )
    inside = {
        o["metadata"]["namespace"] for o in objects if o["metadata"]["name"] == "brain-scaler-jobs"
    }
    pod = one(objects, "Deployment", "brain")["spec"]["template"]["spec"]
    secrets = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    (url,) = (e for e in pod["containers"][0]["env"] if e["name"] == "BRAIN_DATABASE_URL")
    assert (inside, secrets, pod["imagePullSecrets"]) == ({"2026"}, ["1e3"], [{"name": "77"}])
    assert url["valueFrom"]["secretKeyRef"]["name"] == "0x1f"


def test_tokens_come_from_a_secret_and_nothing_secret_is_in_the_chart() -> None:
    brain = one(rendered(), "Deployment", "brain")["spec"]["template"]["spec"]
    mounts = {m["mountPath"]: m.get("subPath") for m in brain["containers"][0]["volumeMounts"]}
    assert mounts["/var/lib/brain/key"] == "key"
    assert [o for o in rendered() if o["kind"] == "Secret"] == []


@pytest.mark.parametrize("program", ["scaler", "adapters", "collector"])
def test_tokens_are_mounted_as_folders_which_the_kubelet_renews(program: str) -> None:
    objects = rendered(adapters={"enabled": True, "pool": "research"})
    found = one(objects, "Deployment", f"brain-{program}")["spec"]["template"]["spec"]
    (container,) = found["containers"]
    (folder,) = (m for m in container["volumeMounts"] if m["name"] == "tokens")
    assert "subPath" not in folder
    assert f"--token-file={folder['mountPath']}/scaler" in container["args"]


def test_the_brain_talks_to_its_database_and_nobody_else() -> None:
    policy = one(rendered(), "NetworkPolicy", "brain")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert set(ports) == {53, 5432}


def test_a_database_may_listen_on_another_port() -> None:
    policy = one(rendered(database={"port": 6432}), "NetworkPolicy", "brain")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert set(ports) == {53, 6432}


def holds(schema: Object, value: Any, path: str = "values") -> Iterator[str]:
    """What of JSON schema the chart's values are held to, as far as our schema uses it."""
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    named = schema.get("type")
    if isinstance(named, str) and not isinstance(value, types[named]):
        yield f"{path} is no {named}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} {value!r} is none of {schema['enum']}"
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, inner in value.items():
            if key in known or isinstance(others, dict):
                yield from holds(known.get(key, others), inner, f"{path}.{key}")
            elif others is False:
                yield f"{path}.{key} is unknown"
    if isinstance(value, int) and value < schema.get("minimum", value):
        yield f"{path} {value} is too small"


def test_the_charts_own_values_keep_its_schema_and_each_is_in_it() -> None:
    assert list(holds(CHART.schema, CHART.values)) == []
    for values in VALUES.values():
        assert list(holds(CHART.schema, merged(CHART.values, values))) == []


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "always"},
        {"brain": {"settings": {"body_limit_bytes": 16777216}}},
        {"databse": {}},
        {"scaler": {"replicas": 0}},
        {"database": {"kind": "x"}},
    ],
)
def test_values_that_cannot_be_are_refused_by_the_schema(values: Object) -> None:
    assert list(holds(CHART.schema, merged(CHART.values, values))) != []


def test_an_external_database_without_its_secret_is_refused_with_the_remedy() -> None:
    with pytest.raises(TemplateError, match="name the Secret"):
        rendered(database={"kind": "external", "secret": ""})


def test_the_notes_keep_to_the_subset_too() -> None:
    text = (render.CHART / "templates" / "NOTES.txt").read_text()
    assert (
        "http://brain.brain.svc:8080.\nJobs have the approval mode shadow by default"
        in CHART.text(text)
    )


@pytest.mark.parametrize(
    "template", ['{{ lookup "v1" }}', "{{ if }}", "{{ end }}", "{{ .Values.a.b.c }}", "{{ $x }}"]
)
def test_what_is_not_in_the_subset_is_an_error(template: str) -> None:
    with pytest.raises(TemplateError):
        CHART.text(template)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a\n{{- if .Values.networkPolicy.enabled }}\nb\n{{- end }}\nc", "a\nb\nc"),
        (
            "{{ range $i, $x := .Values.networkPolicy.apiServerPorts }}{{ $i }}{{ $x }} {{ end }}",
            "0443 16443 ",
        ),
        ("{{ with .Values.image.tag }}x{{ else }}none{{ end }}", "none"),
        ('{{ printf "%s-%s" .Release.Name ("b" | quote) }}', 'brain-"b"'),
        ('{{ $x := .Values.mode }}{{ if eq $x "auto" }}1{{ else if ne $x "off" }}2{{ end }}', "2"),
    ],
)
def test_the_subset_means_what_helm_means(template: str, text: str) -> None:
    assert CHART.text(template) == text


@pytest.mark.parametrize("path", render.files())
def test_what_is_applied_without_helm_follows_from_the_chart(path: str) -> None:
    assert (DEPLOY / path).read_text() == render.files()[path], "run `python -m deploy.render`"


KUSTOMIZATIONS = ["base", "cluster-wide", "namespaced", "trial"]


@cache
def kustomized(name: str) -> list[Object]:
    """What the real kubectl makes of a kustomization."""
    command = ["kubectl", "kustomize", str(DEPLOY / "kustomize" / name)]
    try:
        printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    except FileNotFoundError:
        pytest.skip("kubectl is not installed here")
    return [obj for obj in yaml.load_all(printed.stdout, Loader=yaml.CSafeLoader) if obj]


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_kubectl_builds_each_kustomization(name: str) -> None:
    objects = kustomized(name)
    kinds = {o["kind"] for o in objects}
    assert {"Deployment", "CustomResourceDefinition", "Namespace"} <= kinds
    assert ("ClusterRoleBinding" in kinds) == (name != "base")


def test_the_trial_has_its_database_and_its_address_once() -> None:
    objects = kustomized("trial")
    assert one(objects, "StatefulSet", "brain-postgresql")
    (container,) = one(objects, "Deployment", "brain")["spec"]["template"]["spec"]["containers"]
    urls = [e for e in container["env"] if e["name"] == "BRAIN_DATABASE_URL"]
    assert [set(e) for e in urls] == [{"name", "value"}]


def test_a_namespaced_installation_binds_the_operator_in_the_jobs_namespace() -> None:
    objects = kustomized("namespaced")
    binding = one(objects, "RoleBinding", "brain-scaler-jobs")
    assert binding["metadata"]["namespace"] == "jobs"
    assert binding["subjects"][0]["namespace"] == "brain"


def test_without_a_brain_the_operator_needs_no_token_and_is_told_so() -> None:
    objects = rendered(brain={"enabled": False}, scaler={"submitTo": ["team"]})
    (operator,) = [o for o in objects if o["kind"] == "Deployment"]
    spec = operator["spec"]["template"]["spec"]
    assert "--brain=none" in spec["containers"][0]["args"]
    assert not any("submit-to" in word for word in spec["containers"][0]["args"])
    assert not any("secret" in volume for volume in spec["volumes"])


def test_namespaces_are_opened_to_submissions_by_a_value() -> None:
    operator = one(case_of("submissions to a namespace"), "Deployment", "brain-scaler")
    assert "--submit-to=team" in operator["spec"]["template"]["spec"]["containers"][0]["args"]


def keys_and_texts(value: Any) -> Iterator[Any]:
    """Every key of an object, and every value that Kubernetes wants as text."""
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                if key in ("name", "namespace", "serviceAccountName", "app.kubernetes.io/instance"):
                    yield inner
                yield from keys_and_texts(inner)
        case list():
            for inner in value:
                yield from keys_and_texts(inner)


@pytest.mark.parametrize("text", ["123", "1e5", "0x1f"])
def test_a_release_and_a_namespace_that_look_like_numbers_stay_text(text: str) -> None:
    for case in VALUES.values():
        for found in CHART.render(case, name=text, namespace=text):
            assert all(isinstance(each, str) for each in keys_and_texts(found)), found


def test_variables_that_yaml_takes_for_truth_stay_names() -> None:
    objects = rendered(brain={"environment": {"ON": "1", "Y": "2"}})
    (container,) = one(objects, "Deployment", "brain")["spec"]["template"]["spec"]["containers"]
    names = [each["name"] for each in container["env"]]
    assert {"ON", "Y"} <= set(names)


def test_an_argument_of_any_text_stays_one_text() -> None:
    odd = 'a: b #"c"'
    objects = rendered(
        scaler={"pool": odd, "submitTo": [odd]},
        adapters={"enabled": True, "pool": odd},
        collector={"prometheus": odd},
    )
    given = [
        argument
        for pod in pods(objects)
        for container in pod["containers"]
        for argument in container.get("args", ())
    ]
    assert all(isinstance(argument, str) for argument in given)
    assert sum(argument.endswith(f"={odd}") for argument in given) == 4
