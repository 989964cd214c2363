"""A cluster for the tests of a file, and an operator with a Brain in it for each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.operating import Place, Stage, operating, staged


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("apiserver")) as made:
        yield made


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made:
        yield made
