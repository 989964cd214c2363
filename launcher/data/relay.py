"""The agent's side of shards: it passes on, and remembers enough to tell another coordinator.

No sockets here: ``launcher.data.door`` has them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher import frames


@dataclass(slots=True)
class _Opened:
    """What a worker has of one dataset."""

    #: ``open``, as it was asked.
    began: Mapping[str, Any]
    #: What it holds.
    span: list[int] | None = None
    #: What it did, with the version of the coordinator's books that has it.
    done: list[tuple[int, list[int]]] = field(default_factory=list)
    over: bool = False


@dataclass(slots=True)
class _Worker:
    opened: dict[str, _Opened] = field(default_factory=dict)
    #: Questions without an answer, by number.
    asked: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    #: Up to where it has trained what it holds, by dataset.
    at: dict[str, int] = field(default_factory=dict)


class Relay:
    """All workers of one agent that ask for shards."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        #: The coordinator's books, as they were last told here.
        self._books: frames.Shared | None = None

    def asks(self, holder: str, number: int, body: Mapping[str, Any]) -> frames.Asked:
        """A worker asks something."""
        worker = self._workers.setdefault(holder, _Worker())
        worker.asked[number] = body
        return _asked(holder, number, body)

    def trained(self, holder: str, name: str, at: int) -> None:
        """A worker is through with everything before ``at`` of the shard it holds."""
        if worker := self._workers.get(holder):
            worker.at[name] = at

    def answered(self, frame: frames.Answered) -> Mapping[str, Any] | None:
        """The coordinator answers; None: nobody waits for it."""
        worker = self._workers.get(frame.holder)
        asked = None if worker is None else worker.asked.pop(frame.number, None)
        if worker is None or asked is None:
            return None
        body: Mapping[str, Any] = json.loads(frame.body)
        if "error" not in body:
            _note(worker, asked, body, frame.version)
        return body

    def shared(self, frame: frames.Shared) -> None:
        """The coordinator tells its books; what stands in them need not be remembered."""
        self._books = frame
        for worker in self._workers.values():
            for opened in worker.opened.values():
                opened.done = [each for each in opened.done if each[0] > frame.version]

    def parted(self, holder: str) -> frames.Parted | None:
        """A worker is gone; None: it never asked for anything."""
        worker = self._workers.pop(holder, None)
        if worker is None:
            return None
        return frames.Parted(holder=holder, at=json.dumps(worker.at).encode())

    def again(self) -> Iterator[frames.Frame]:
        """What another coordinator has to know, and what was not answered."""
        if self._books is not None:
            yield self._books
        for holder, worker in self._workers.items():
            for opened in worker.opened.values():
                yield _asked(holder, -1, _resume(opened))
            for number, body in worker.asked.items():
                yield _asked(holder, number, body)


def _note(
    worker: _Worker, asked: Mapping[str, Any], answer: Mapping[str, Any], version: int
) -> None:
    name = asked["name"]
    match asked["do"]:
        case "open":
            worker.opened[name] = _Opened(asked)
        case "close":
            worker.opened.pop(name, None)
        case "ask" if opened := worker.opened.get(name):
            if asked["done"] is not None:
                opened.done.append((version, asked["done"]))
            opened.span, opened.over = answer.get("span"), "over" in answer
            worker.at.pop(name, None)


def _resume(opened: _Opened) -> dict[str, Any]:
    done = [span for _, span in opened.done]
    said = {"do": "resume", "span": opened.span, "done": done, "over": opened.over}
    return {**opened.began, **said}


def _asked(holder: str, number: int, body: Mapping[str, Any]) -> frames.Asked:
    return frames.Asked(holder=holder, number=number, body=json.dumps(body).encode())
