"""Watches pods, so that a pod that starts and ends between two rounds of readings is not missed.

Each round lists pods, and a watch receives every change in between. Changes are kept by uid until
the next round takes them. A watch that ends is started again, and the next list shows the changes
that the watch missed.
"""

import asyncio
import logging
from collections.abc import Sequence

from brain.errors import BadInput, BrainError, NotAllowed, Unavailable
from collectors.pods.door import Door
from collectors.pods.sights import PodSight, pod

log = logging.getLogger("collectors")

#: Shortest and longest pause after a failed watch; the pause doubles with each failure.
_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
#: Seconds after which the server ends a watch.
_WATCH_SECONDS = 240


class Passing:
    """A watch that also sees pods that start and end between two rounds."""

    def __init__(self, door: Door, paths: Sequence[str]) -> None:
        """``paths`` are the paths of lists of pods: one for the cluster, or one per namespace."""
        self._door, self._paths = door, tuple(paths)
        self._heard: dict[str, PodSight] = {}
        #: Error because of which pods cannot be watched; None if the watch works.
        self.trouble: BrainError | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path in self._paths:
                tasks.create_task(self._follow(path))

    def taken(self) -> list[PodSight]:
        """Return each pod seen since the last call, in its latest state."""
        heard, self._heard = self._heard, {}
        return list(heard.values())

    async def _follow(self, path: str) -> None:
        pause = _FIRST_SECONDS
        while True:
            try:
                await self._watch(path)
                pause, self.trouble = _FIRST_SECONDS, None
            except BrainError as why:
                # Without the right to watch, lists are all that there is.
                self.trouble = why if isinstance(why, NotAllowed) else None
                log.info("watch %s: %s", path, why)
            except Exception:
                # An object of a form that nobody foresaw; without this nobody would watch again.
                log.exception("watch %s", path)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

    async def _watch(self, path: str) -> None:
        listed = await self._door.get(path, limit="1")
        version = str((listed.get("metadata") or {}).get("resourceVersion") or "")
        query = {"resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
        async for event in self._door.watch(path, **query):
            if event.get("type") == "ERROR":
                raise Unavailable(f"watch {path}: {event.get('object', {}).get('message', '')}")
            try:
                found = pod(event.get("object") or {})
            except BadInput as odd:
                log.debug("%s: %s", path, odd)
                continue
            self._heard[found.uid] = found
