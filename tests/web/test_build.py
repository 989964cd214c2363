"""What ships: small, self-contained, without anything inline."""

import gzip
import re
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
DIST = WEB / "dist"
#: Bytes of page, scripts and style sheets, compressed, before a page can show anything.
BUDGET = 80 * 1024


@pytest.mark.parametrize("part", ["fleet", "job"])
def test_the_first_load_of_any_page_stays_within_its_budget(part: str) -> None:
    page = (DIST / "index.html").read_text()
    files = {"index.html", *re.findall(r'(?:src|href)="\./([^"]+\.(?:js|css))"', page)}
    assert {name.rpartition(".")[2] for name in files} == {"html", "js", "css"}
    found = {f"assets/{path.name}" for path in DIST.glob(f"assets/{part}-*.*")}
    assert found
    while found - files:
        files |= found
        found = {f"assets/{name}" for one in files for name in _imported(DIST / one)}
    assert sum(len(gzip.compress((DIST / name).read_bytes())) for name in files) <= BUDGET


def _imported(path: Path) -> list[str]:
    """The files that a script cannot run without."""
    return re.findall(r'from"\./([^"]+)"', path.read_text()) if path.suffix == ".js" else []


def test_the_page_refers_to_its_own_files_only_and_holds_nothing_inline() -> None:
    page = (DIST / "index.html").read_text()
    assert re.findall(r'(?:src|href)="(?!\./)', page) == []
    assert re.findall(r"<style|style=|<script(?![^>]+src=)", page) == []


def test_no_file_fetches_anything_from_elsewhere() -> None:
    found = {
        url
        for path in DIST.rglob("*")
        if path.suffix in {".js", ".css", ".html"}
        for url in re.findall(r"https?://[\w.-]+", path.read_text())
    }
    # Names of XML namespaces, which nobody fetches.
    assert found <= {"http://www.w3.org"}


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (WEB / "package-lock.json").read_text()
