"""What ships: small, self-contained, without anything inline."""

import gzip
import re
from pathlib import Path

WEB = Path(__file__).parents[2] / "web"
DIST = WEB / "dist"
#: Bytes of page, script and style sheet, compressed, before a page can show anything.
BUDGET = 80 * 1024


def test_the_first_load_stays_within_its_budget() -> None:
    page = (DIST / "index.html").read_text()
    parts = re.findall(r'(?:src|href)="\./([^"]+\.(?:js|css))"', page)
    assert {name.rpartition(".")[2] for name in parts} == {"js", "css"}
    files = ["index.html", *parts]
    assert sum(len(gzip.compress((DIST / name).read_bytes())) for name in files) <= BUDGET


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
