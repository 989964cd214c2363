"""The dashboard's files, and the document that its types come from."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from brain.api import openapi
from brain.api.routes import ui
from tests.api.app import Api

PAGE = {"Accept": "text/html"}
FROZEN = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


@pytest.fixture
def built(api: Api, tmp_path: Path) -> Iterator[Api]:
    """An app with a dashboard of two files."""
    root = tmp_path / "dist"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text("<title>Brain</title>")
    (root / "assets" / "app-1a2b.js").write_text("1")
    (tmp_path / "secret.js").write_text("outside")
    (root / "assets" / "linked.js").symlink_to(tmp_path / "secret.js")
    with showing(api, root):
        yield api


@contextmanager
def showing(api: Api, root: Path | None) -> Iterator[None]:
    """Let the app have another dashboard."""
    app: FastAPI = api.app
    own, app.router.default = app.router.default, ui.Dashboard(root)
    yield
    app.router.default = own


@pytest.mark.parametrize("path", ["/", "/jobs/digits", "/index.html"])
def test_a_navigation_gets_the_page_uncached_and_without_a_token(built: Api, path: str) -> None:
    with built.http() as http:
        page = http.get(path, headers=PAGE)
    assert (page.status_code, page.headers["cache-control"]) == (200, "no-cache")
    assert "default-src 'self'" in page.headers["content-security-policy"]


def test_an_asset_is_cached_for_good(built: Api) -> None:
    with built.http() as http:
        asset = http.get("/assets/app-1a2b.js")
    assert (asset.status_code, "immutable" in asset.headers["cache-control"]) == (200, True)


def test_what_a_later_build_wrote_is_served_at_once(built: Api, tmp_path: Path) -> None:
    (tmp_path / "dist" / "assets" / "app-3c4d.js").write_text("2")
    with built.http() as http:
        assert http.get("/assets/app-3c4d.js").text == "2"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/gone.js",
        "/api/v1/gone",
        "/favicon.ico",
        "/%2e%2e/secret.js",
        "//%2e%2e/secret.js",
        "/assets/linked.js",
        "/assets/%00.js",
        "/" + "a" * 300 + ".js",
    ],
)
def test_what_is_no_page_is_not_found_even_for_a_browser(built: Api, path: str) -> None:
    with built.http() as http:
        answer = http.get(path, headers=PAGE)
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/NotFound")


def test_a_program_is_not_given_the_page(built: Api) -> None:
    with built.http() as http:
        assert http.get("/jobs/digits").status_code == 404


def test_a_dashboard_that_was_not_built_says_how(api: Api) -> None:
    with showing(api, None), api.http() as http:
        answer = http.get("/", headers=PAGE)
    assert (answer.status_code, "make web" in answer.json()["detail"]) == (404, True)


def test_the_frozen_openapi_document_is_what_the_app_says(api: Api) -> None:
    assert FROZEN.read_text() == openapi.as_text(api.app), (
        "run `make openapi` and look at the difference"
    )
