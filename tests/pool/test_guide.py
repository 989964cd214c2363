"""docs/guides/sharing.md: its documents are documents, its commands and metrics exist."""

import re
from pathlib import Path

import yaml

from brain import wire
from brain.api.metrics import Metrics
from brain.cli import COMMANDS
from brain.types.job import OptimizeMode
from brain.types.sharing import PoolShares, ProjectShare

GUIDE = (Path(__file__).parents[2] / "docs/guides/sharing.md").read_text()
JOB, POLICY = (yaml.safe_load(part.split("```")[0]) for part in GUIDE.split("```yaml")[1:])


def test_its_job_shares_its_pool():
    assert wire.job_document(JOB).optimize_mode is OptimizeMode.CLUSTER


def test_its_policy_divides_a_pool():
    policy = wire.document(POLICY, PoolShares)

    policy.check()

    assert policy.projects["speech"] == ProjectShare(guaranteed=2, priority=1)


def test_its_commands_exist():
    said = set(re.findall(r"\bbrain ([a-z]+)\b", GUIDE))
    assert said <= set(COMMANDS)


def test_its_metrics_exist():
    said = set(re.findall(r"\bbrain_pool_[a-z]+\b", GUIDE))
    known = {metric.name for metric in Metrics().registry.collect()}
    assert said <= known
