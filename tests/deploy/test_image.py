"""The Dockerfile keeps the rules that a linter would hold it to, and the compose file its own."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from brain.settings import settings_from, settings_in_environment
from deploy.image.follow import DOCKERFILE, ROOT, Instruction, instructions

STEPS = list(instructions(DOCKERFILE.read_text()))


def of(word: str) -> list[Instruction]:
    return [step for step in STEPS if step.word == word]


def last_stage() -> list[Instruction]:
    start = max(index for index, step in enumerate(STEPS) if step.word == "FROM")
    return STEPS[start:]


def test_every_base_is_pinned_by_a_digest_that_has_to_be_given() -> None:
    arguments = [step.rest for step in STEPS[: STEPS.index(of("FROM")[0])]]
    assert arguments == ["PYTHON_DIGEST", "AGENT_DIGEST"]
    assert all(re.search(r"@\$\{(PYTHON|AGENT)_DIGEST\}", step.rest) for step in of("FROM"))


def test_what_runs_has_a_base_that_is_maintained() -> None:
    # The agent's interpreter must run on C libraries as old as Debian 11's.
    assert {
        step.rest.partition("@")[0] for step in of("FROM") if not step.rest.endswith("AS agent")
    } == {"python:3.11-slim-bookworm"}


def test_what_builds_is_not_in_what_runs() -> None:
    assert len(of("FROM")) >= 3
    words = " ".join(step.rest for step in last_stage() if step.word == "RUN")
    assert "pip" not in words
    assert {step.flags().get("from") for step in last_stage() if step.word == "COPY"} == {
        "service",
        "agent",
    }


def test_it_runs_as_nobody_in_particular_who_has_a_number() -> None:
    users = [step.rest for step in last_stage() if step.word == "USER"]
    assert len(users) == 1
    assert re.fullmatch(r"[1-9][0-9]{3,}:[1-9][0-9]{3,}", users[0])
    assert "sudo" not in DOCKERFILE.read_text()


def test_commands_are_lists_and_nothing_is_fetched_but_by_pip() -> None:
    assert all(step.rest.startswith("[") for step in (*of("CMD"), *of("ENTRYPOINT")))
    assert of("ADD") == []
    assert not [s for s in of("RUN") if re.search(r"\b(curl|wget|git|apt-get|apk)\b", s.rest)]


def test_pip_leaves_no_cache_and_keeps_to_the_constraints() -> None:
    pips = [step.rest for step in of("RUN") if "-m pip" in step.rest]
    assert pips
    assert all("--no-cache-dir" in rest for rest in pips)
    free = [rest for rest in pips if "-c /wheels/constraints.txt" not in rest]
    assert all("--no-deps" in rest or re.search(r"\w==\d", rest) for rest in free)


def test_no_secret_is_an_argument_or_in_the_environment() -> None:
    told = " ".join(step.rest for step in (*of("ARG"), *of("ENV"), *of("LABEL")))
    assert not re.search(r"(?i)password|token|secret", told)


def test_what_is_copied_is_there_and_what_the_wheel_needs_is_copied() -> None:
    sources = [
        source for step in of("COPY") if "from" not in step.flags() for source in step.words()[:-1]
    ]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    needed = {"brain", "collectors", "launcher", "scaler", "migrations", "examples", "web/dist"}
    needed |= {"_elastic_brain.py", "LICENSE", "NOTICE", "licenses"}
    assert needed <= set(sources)


def services() -> Iterator[tuple[str, dict[str, Any]]]:
    file: Path = ROOT / "deploy" / "compose.yaml"
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    yield from found.items()


def test_the_compose_file_sets_settings_that_exist_and_publishes_on_loopback() -> None:
    brain = dict(services())["brain"]
    environment = {
        key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", text) for key, text in brain["environment"].items()
    }
    found = settings_in_environment(environment)
    assert len(found) == len(environment)
    assert settings_from(found).policy_mode == "shadow"
    assert brain["ports"] == ["${BRAIN_ADDRESS:-127.0.0.1}:8080:8080"]


def test_every_composed_service_says_whether_it_is_well_and_comes_back() -> None:
    for name, service in services():
        assert {"healthcheck", "restart", "image"} <= service.keys(), name
        assert "latest" not in service["image"]
