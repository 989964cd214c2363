"""What is written from the kinds is what lies in the repository, and is well formed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scaler.kubernetes.kinds import ElasticJob, ScalePlan
from scaler.kubernetes.kinds.__main__ import files
from scaler.kubernetes.kinds.generate import rbac
from scaler.kubernetes.kinds.generate.schema import definition
from scaler.kubernetes.kinds.rights import RIGHTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", files())
def test_what_lies_in_the_repository_follows_from_the_kinds(path: str) -> None:
    assert (ROOT / path).read_text() == files()[path], "run `python -m scaler.kubernetes.kinds`"


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema, itself first."""
    if isinstance(schema, dict):
        yield schema
        for key in ("properties",):
            for inner in schema.get(key, {}).values():
                yield from schemas(inner)
        for key in ("items", "additionalProperties"):
            yield from schemas(schema.get(key))


def root(kind: type[ElasticJob] | type[ScalePlan]) -> dict[str, Any]:
    found: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize("kind", [ElasticJob, ScalePlan])
def test_every_field_has_a_type_and_every_field_of_a_spec_a_text(kind: Any) -> None:
    untyped = [each for each in schemas(root(kind)) if not each.keys() & {"type", "anyOf"}]
    spec = root(kind)["properties"]["spec"]
    inside = [each for each in schemas(spec) if "properties" in each]
    silent = [
        name
        for each in inside
        for name, field in each["properties"].items()
        if "description" not in field and name not in ("metadata", "spec", "containers", "name")
    ]
    assert (untyped, silent) == ([], [])


@pytest.mark.parametrize("kind", [ElasticJob, ScalePlan])
def test_no_description_ends_in_the_middle_of_a_sentence(kind: Any) -> None:
    texts = [each["description"] for each in schemas(root(kind)) if "description" in each]
    assert [text for text in texts if not text.endswith((".", "`", ")"))] == []


@pytest.mark.parametrize("kind", [ElasticJob, ScalePlan])
def test_everything_that_a_rule_may_look_at_is_bounded(kind: Any) -> None:
    spec = root(kind)["properties"]["spec"]
    unbounded = [
        each
        for each in schemas(spec)
        if each.get("type") == "array" and not each.keys() & {"maxItems", "minItems"}
    ]
    maps = [each for each in schemas(spec) if "additionalProperties" in each]
    assert unbounded == []
    assert all("maxProperties" in each for each in maps)


@pytest.mark.parametrize("kind", [ElasticJob, ScalePlan])
def test_conditions_are_a_map_by_type_that_says_of_which_generation(kind: Any) -> None:
    conditions = root(kind)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert {"type", "status"} == set(conditions["items"]["required"])
    assert "observedGeneration" in conditions["items"]["properties"]


def test_a_status_has_no_defaults() -> None:
    status = root(ElasticJob)["properties"]["status"]
    assert not [each for each in schemas(status) if "default" in each]


def test_columns_scale_and_short_names_are_there() -> None:
    spec = definition(ElasticJob)["spec"]
    version = spec["versions"][0]
    assert spec["names"]["shortNames"] == ["ej"]
    assert version["subresources"]["scale"]["specReplicasPath"].endswith("worker.replicas")
    assert [each["name"] for each in version["additionalPrinterColumns"]][:3] == [
        "Phase",
        "Replicas",
        "Ready",
    ]


def test_a_definition_stays_when_its_chart_goes() -> None:
    annotations = definition(ScalePlan)["metadata"]["annotations"]
    assert annotations["helm.sh/resource-policy"] == "keep"


def test_the_operator_has_no_right_that_would_make_it_master_of_the_cluster() -> None:
    for right in RIGHTS:
        assert "*" not in (right.group, *right.resources, *right.verbs)
        assert not {"escalate", "bind", "impersonate"} & set(right.verbs)
        assert not {"roles", "pods/exec", "pods/attach", "nodes/proxy"} & set(right.resources)
    secrets = [right for right in RIGHTS if "secrets" in right.resources]
    assert not {"list", "watch"} & {verb for right in secrets for verb in right.verbs}


def test_one_namespace_at_a_time_has_no_right_outside_of_it_but_to_see_nodes() -> None:
    cluster = [each for each in rbac.in_own() if each["kind"] == "ClusterRole"]
    verbs = {verb for role in cluster for rule in role["rules"] for verb in rule["verbs"]}
    assert verbs <= {"get", "list", "watch"}
    assert {each["kind"] for each in rbac.in_namespace()} == {"Role", "RoleBinding"}


def test_the_reference_names_every_field() -> None:
    page = files()["docs/reference/kubernetes-kinds.md"]
    names = [
        name
        for kind in (ElasticJob, ScalePlan)
        for each in schemas(root(kind)["properties"]["spec"])
        for name in each.get("properties", {})
        if name not in ("metadata", "containers", "spec")
    ]
    assert [name for name in names if name not in page] == []


def test_the_yaml_has_no_anchors() -> None:
    assert [path for path, text in files().items() if "&id0" in text] == []
