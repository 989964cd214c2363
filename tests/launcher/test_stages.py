"""What libraries read of the environment as they are imported, and in which order they came."""

import os
import sys
from collections.abc import Callable

import pytest

from launcher.inject.stages import Stages
from launcher.inject.traces import Environment, replace_content


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    content = os.environ._data  # type: ignore[attr-defined]
    watched = Environment(content, frozenset([b"RANK"]))
    monkeypatch.setattr(os.environ, "_data", watched)
    monkeypatch.setattr(os.environb, "_data", watched)
    replace_content(watched)
    return watched


@pytest.mark.parametrize(
    ("read", "names"),
    [
        (lambda: os.environ.get("ABSENT"), {b"ABSENT"}),
        (lambda: "ABSENT" in os.environ, {b"ABSENT"}),
        (lambda: os.getenvb(b"ABSENT"), {b"ABSENT"}),
        (lambda: os.environ["PATH"], {b"PATH"}),
        (lambda: os.path.expandvars("$ABSENT"), {b"ABSENT"}),
        (lambda: os.environ.get("RANK"), set()),
        (lambda: dict(os.environ), set()),
        (lambda: [v for k, v in os.environ.items() if k == "PATH"], set()),
        (lambda: (os.environ.copy(), os.environ.get("ABSENT")), {b"ABSENT"}),
    ],
)
def test_names_that_are_asked_for_are_known_but_for_loops_over_all(
    environment: Environment, read: Callable[[], object], names: set[bytes]
) -> None:
    read()
    assert environment.reads == names


def test_a_library_is_behind_all_that_it_may_rely_on(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages()

    def imports(module: str, *reads: str) -> None:
        stages.begin()
        monkeypatch.setitem(sys.modules, module, os)
        for name in reads:
            os.environ.get(name)
        stages.imported(module)

    imports("first", "A")
    imports("quiet")
    imports("second", "B")
    imports("first.part", "C")
    assert stages.read_in(range(stages.up_to("first", 0))) == {"A", "C"}
    assert stages.up_to("first", 0) == stages.up_to("quiet", 0) == 2
    assert stages.read_in(range(2, stages.up_to("second", 2))) == {"B"}
    assert stages.up_to("first", 3) == 3
