"""Alert rules and dashboards ask for metrics that are there, and each alert has its runbook."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from brain.api.metrics import Metrics as ServiceMetrics
from brain.cli import COMMANDS
from scaler.kubernetes.runtime.metrics import RuntimeMetrics as OperatorMetrics

ROOT = Path(__file__).parents[2]
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
RUNBOOKS = ROOT / "docs/guides/runbooks.md"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
#: Words of PromQL that look like names of metrics.
_WORDS = frozenset(
    [
        "absent",
        "histogram_quantile",
        "increase",
        "rate",
        "sum",
        "max",
        "min",
        "by",
        "abs",
        "le",
        "without",
        "avg",
        "and",
        "or",
        "on",
    ]
)


def exposed(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Series name -> its labels."""
    found: dict[str, set[str]] = {}
    for metric in registry._collector_to_names:
        labels = set(getattr(metric, "_labelnames", ()))
        for name in registry._collector_to_names[metric]:
            found[name] = labels | ({"le"} if name.endswith("_bucket") else set())
    return found


EXPOSED = exposed(ServiceMetrics().registry) | exposed(OperatorMetrics().registry)
#: Given by Prometheus itself.
_ADDED = {"pod", "instance", "job", "namespace"}


def rules() -> Iterator[dict[str, Any]]:
    for group in ALERTS["groups"]:
        yield from group["rules"]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


ASKED = list(expressions())


def names_in(expr: str) -> set[str]:
    """Metrics that a PromQL expression reads."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(by|without|on) *\([^)]*\)", " ", expr)
    return set(re.findall(r"[a-z_][a-z_0-9]*", bare)) - _WORDS


def labels_in(expr: str) -> set[str]:
    """Labels that it groups by or selects."""
    grouped = re.findall(r"\bby *\(([^)]*)\)", expr)
    selected = re.findall(r"([a-z_]+) *(?:=~|!~|!=|=)", " ".join(re.findall(r"\{([^}]*)\}", expr)))
    return {name.strip() for part in grouped for name in part.split(",")} | set(selected)


@pytest.mark.parametrize("asked", ASKED, ids=[name for name, _ in ASKED])
def test_every_metric_that_is_asked_for_is_exposed_with_those_labels(
    asked: tuple[str, str],
) -> None:
    _, expr = asked
    names = names_in(expr)
    assert names
    assert names <= EXPOSED.keys()
    known = {label for name in names for label in EXPOSED[name]}
    assert labels_in(expr) <= known | _ADDED


#: What tells our operator's series from those of all others in a cluster.
_OURS = ('name="brain-scaler"', '=~"elasticjob|scaleplan|published"')


@pytest.mark.parametrize("asked", ASKED, ids=[name for name, _ in ASKED])
def test_metrics_that_every_operator_has_are_asked_of_ours_alone(asked: tuple[str, str]) -> None:
    _, expr = asked
    shared = names_in(expr) & exposed(OperatorMetrics().registry).keys()
    assert not shared or any(each in expr for each in _OURS)


def anchors() -> set[str]:
    return {
        line[3:].strip().lower().replace(" ", "-")
        for line in RUNBOOKS.read_text().splitlines()
        if line.startswith("## ")
    }


def test_every_alert_says_how_bad_it_is_and_where_its_runbook_is() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (ROOT / page) == RUNBOOKS
        assert anchor in anchors()


def test_every_runbook_has_its_alert() -> None:
    assert anchors() == {rule["alert"].lower() for rule in rules()}


def test_alerts_are_named_once() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_the_chosen_source_and_its_panels_do_not_overlap(path: Path) -> None:
    board = json.loads(path.read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${datasource}"}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_command_that_a_runbook_gives_is_there() -> None:
    given = set(re.findall(r"`brain ([a-z-]+)", RUNBOOKS.read_text()))
    assert given
    assert given <= set(COMMANDS)


def _series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_alerts_of_a_lost_database_fire(tmp_path: Path) -> None:
    degraded = {
        "exp_labels": {"severity": "warning", "what": "database"},
        "exp_annotations": next(
            {name: text.replace("{{ $labels.what }}", "database") for name, text in said.items()}
            for said in (
                rule["annotations"] for rule in rules() if rule["alert"] == "BrainDegraded"
            )
        ),
    }
    idle = {
        "exp_labels": {"severity": "critical"},
        "exp_annotations": next(
            r["annotations"] for r in rules() if r["alert"] == "BrainNotDeciding"
        ),
    }
    case = {
        "interval": "1m",
        "input_series": [
            _series('brain_degraded{what="database"}', "0x9 1x60"),
            _series('brain_lease_held{pool="local"}', "1x9 0x60"),
        ],
        "alert_rule_test": [
            {"eval_time": "9m", "alertname": "BrainNotDeciding"},
            {"eval_time": "16m", "alertname": "BrainNotDeciding", "exp_alerts": [idle]},
            {"eval_time": "16m", "alertname": "BrainDegraded"},
            {"eval_time": "21m", "alertname": "BrainDegraded", "exp_alerts": [degraded]},
        ],
    }
    rule_file = str(ROOT / "deploy/prometheus/alerts.yaml")
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": [rule_file], "tests": [case]})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
