"""A real Chromium, and pages of it that are signed in and watched."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.web.served import Served

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
REMEDY = "install one with: sudo apt-get install --yes chromium"
#: Milliseconds that a page may take for anything.
PATIENCE = 30_000


def chromium() -> str:
    """Path of a Chromium; Debian's is installed where we may, else this fails with the remedy."""
    if found := _found():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *command], check=False, env=quiet, capture_output=True)
        if found := _found():
            return found
    raise AssertionError(f"the browser tests need a Chromium and none is on the PATH; {REMEDY}")


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), headless=True, args=ARGUMENTS
        )
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page with everything that it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def forgive(self, *words: str) -> None:
        """Drop complaints that contain one of these words."""
        self.complaints[:] = [
            said for said in self.complaints if not any(word in said for word in words)
        ]


@contextmanager
def visit(
    browser: Browser,
    served: Served,
    *,
    theme: Literal["light", "dark"] = "light",
    width: int = 1440,
    height: int = 900,
    signed_in: bool = True,
    **context: Any,
) -> Iterator[Visit]:
    """A fresh browser profile with one page; it must not have complained in the end."""
    profile = browser.new_context(
        color_scheme=theme,
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
        **context,
    )
    profile.set_default_timeout(PATIENCE)
    page = profile.new_page()
    seen = Visit(page)
    page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))
    page.on("console", _listener(seen))
    try:
        if signed_in:
            page.goto(f"{served.url}/#signin={code(served)}")
            page.get_by_role("heading", name="Overview", level=1).wait_for()
        yield seen
        assert seen.complaints == []
    finally:
        _close(profile)


def afresh(page: Page, address: str) -> None:
    """Load an address as a new tab does: nothing of the page before is left."""
    page.goto("about:blank")
    page.goto(address)


def _listener(seen: Visit) -> Callable[[Any], None]:
    def heard(message: Any) -> None:
        if message.type in ("error", "warning"):
            seen.complaints.append(f"{message.type}: {message.text}")

    return heard


def _close(profile: BrowserContext) -> None:
    for page in profile.pages:
        page.close()
    profile.close()


def code(served: Served) -> str:
    """A fresh one-time sign-in code."""
    answer = httpx2.post(
        f"{served.url}/api/v1/sign-in-codes",
        headers={"Authorization": f"Bearer {served.admin}", "Idempotency-Key": os.urandom(8).hex()},
        json={},
        timeout=PATIENCE / 1000,
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["code"])
