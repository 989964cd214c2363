"""Every picture in the documents is taken by a command, from a Brain that runs."""

import re
from pathlib import Path

from playwright.sync_api import Browser

from tests.web import screenshots

HERE = Path(__file__).parents[2]


def test_every_picture_of_the_documents_is_one_that_is_taken() -> None:
    shown = {
        name
        for path in (HERE / "README.md", *(HERE / "docs").rglob("*.md"))
        for name in re.findall(r"images/([\w-]+\.png)", path.read_text())
    }
    kept = {path.name for path in screenshots.IMAGES.glob("*")}
    assert shown <= kept == set(screenshots.PICTURES)


def test_the_pictures_can_be_taken_and_tell_one_truth(browser: Browser, tmp_path: Path) -> None:
    with screenshots.pictured() as served:
        screenshots.take(browser, served, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(screenshots.PICTURES)
