"""Pods that live shorter than the time between two looks."""

import asyncio
import json
from typing import Any

import httpx2

from brain.errors import NotAllowed, Unavailable
from collectors.pods.door import Access, Door
from collectors.pods.identity import Stays, looked
from collectors.pods.sources import TelemetrySources
from collectors.pods.watching import Passing
from tests.collectors.clustered import Listing, at, jobs, pod, seen

PATH = "/api/v1/pods"


class Watching(Listing):
    """Lists as before; a watch tells these events and then ends."""

    def __init__(self, paths: dict[str, Any], *events: dict[str, Any], code: int = 200) -> None:
        super().__init__(paths)
        self.events, self.code = events, code
        self.heard = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.params.get("watch") != "true":
            return await super().handle_async_request(request)
        self.heard.set()
        if self.code != 200:
            return httpx2.Response(self.code, json={"message": "no"})
        return httpx2.Response(200, text="".join(json.dumps(each) + "\n" for each in self.events))


def event(type: str, made: dict[str, Any]) -> dict[str, Any]:
    return {"type": type, "object": made}


async def passed(listing: Watching, sources: TelemetrySources) -> Any:
    """One round, after a watch was heard."""
    hearing = asyncio.create_task(sources.hear())
    async with asyncio.timeout(20):
        await listing.heard.wait()
        while not (sources._passing._heard or sources._passing.trouble):
            await asyncio.sleep(0)
    hearing.cancel()
    return await sources.look()


def test_a_pod_that_came_and_went_between_two_looks_is_told_with_how_it_ended():
    short = pod("digits-edljob-worker-9", "pod-9", phase="Succeeded")
    listing = Watching({PATH: [pod()]}, event("ADDED", pod()), event("DELETED", short))

    found = asyncio.run(passed(listing, TelemetrySources(listing.door())))

    assert [(each.uid, each.phase) for each in found.passed] == [("pod-9", "Succeeded")]


def test_its_stay_is_over_at_once_and_kept():
    short = seen("digits-edljob-worker-9", "pod-9", phase="Running")

    stays = looked(looked(Stays(), [short], jobs(), at(30)), [], jobs(), at(30))

    assert stays.all["pod-9"].end == at(30)


def test_without_the_right_to_watch_lists_are_all_there_is():
    listing = Watching({PATH: [pod()]}, code=403)

    found = asyncio.run(passed(listing, TelemetrySources(listing.door())))

    assert [each.uid for each in found.pods] == ["pod-0"]
    watch = [each for each in found.troubles if each.source == "watch"]
    assert [each.remedy.split(":")[0] for each in watch] == ["grant `watch` on pods"]


def test_an_event_that_is_cut_or_an_error_begins_the_watch_anew():
    gone = {"type": "ERROR", "object": {"message": "too old resource version"}}
    listing = Watching({PATH: []}, gone)
    passing = Passing(Door(Access(url="http://api", token=lambda: ""), listing), [PATH])

    async def once() -> str:
        try:
            await passing._watch(PATH)
        except Unavailable as why:
            return str(why)
        return ""

    assert "too old resource version" in asyncio.run(once())
    assert passing.taken() == []
    assert not isinstance(passing.trouble, NotAllowed)
