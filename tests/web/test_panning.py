"""The time axis of a job's charts is moved by pointer, wheel and keys, within what there is."""

import re

from playwright.sync_api import Browser, Page, expect

from tests.web.browser import visit
from tests.web.served import Served

TIMES = re.compile(r"(\d\d):(\d\d) – (\d\d):(\d\d)")


def test_a_drag_moves_the_times_back_and_a_button_leads_to_now(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        _open(seen.page, served)
        before = _times(seen.page)
        line = seen.page.locator(".plot canvas").first
        drawn = line.screenshot()
        box = seen.page.locator(".overlay").bounding_box()
        assert box is not None
        seen.page.mouse.move(box["x"] + 100, box["y"] + 100)
        seen.page.mouse.down()
        seen.page.mouse.move(box["x"] + 400, box["y"] + 100, steps=5)
        seen.page.mouse.up()
        since, until = _times(seen.page)
        assert 3 <= before[1] - until <= 12  # minutes, of 15 on the axis
        assert since < before[0]
        assert line.screenshot() != drawn
        # Measurements of where it leads are loaded, and nothing of now is told there.
        expect(seen.page.locator(".overlay text.rd").first).to_be_visible()
        expect(seen.page.locator(".overlay .btb")).to_have_count(0)
        seen.page.get_by_role("button", name="To now").click()
        assert _times(seen.page)[1] >= before[1]
        expect(seen.page.locator(".overlay .btb")).to_be_visible()


def test_wheel_and_keys_move_the_times_as_far_as_there_is_something(
    browser: Browser, served: Served
) -> None:
    with visit(browser, served) as seen:
        _open(seen.page, served)
        before = _times(seen.page)
        seen.page.locator(".overlay").hover()
        seen.page.keyboard.down("Shift")
        seen.page.mouse.wheel(0, -300)
        seen.page.keyboard.up("Shift")
        expect(seen.page.get_by_role("button", name="To now")).to_be_visible()
        assert _times(seen.page)[1] < before[1]
        seen.page.get_by_role("group", name="Measured charts").focus()
        seen.page.keyboard.press("Home")
        first = _times(seen.page)
        assert before[1] - first[1] >= 48  # the job is 64 minutes old, the axis has 15
        seen.page.keyboard.press("PageUp")
        assert _times(seen.page) == first
        seen.page.keyboard.press("PageDown")
        assert 7 <= _times(seen.page)[1] - first[1] <= 8
        seen.page.keyboard.press("End")
        assert _times(seen.page)[1] >= before[1]
        expect(seen.page.get_by_role("button", name="To now")).to_have_count(0)


def test_a_chart_asks_for_as_many_points_as_it_has_pixels(browser: Browser, served: Served) -> None:
    with visit(browser, served) as seen:
        asked: list[str] = []
        seen.page.on("request", lambda request: asked.append(request.url))
        _open(seen.page, served)
        widths = {int(found[1]) for url in asked if (found := re.search(r"[?&]width=(\d+)", url))}
        box = seen.page.locator(".plot .u-over").first.bounding_box()
        assert box is not None
        assert {round(width - box["width"]) for width in widths} <= {-1, 0, 1}


def _open(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/#/jobs/digits?range=15+min")
    expect(page.locator(".overlay text.rd").first).to_be_visible()


def _times(page: Page) -> tuple[int, int]:
    """Minutes of the day at which the axis begins and ends."""
    said = TIMES.search(page.locator(".charts .h .sub").first.inner_text())
    assert said is not None
    hours = [int(part) for part in said.groups()]
    begin, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    return begin, end + (1440 if end < begin else 0)
