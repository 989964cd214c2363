"""The agent's side of shards: it relays requests, and stores what the next coordinator needs.

The sockets are in ``launcher.data.shard_socket``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher import messages


@dataclass(slots=True)
class _Opened:
    """A worker's use of one dataset: the shard it holds, and its progress."""

    #: ``open``, as it was asked, and what it was told of its beginning.
    began: Mapping[str, Any]
    era: int
    #: Its shard, and the example up to which it has trained.
    span: list[int] | None = None
    at: int | None = None
    #: Shards that it did, with the version of the coordinator's ledgers that includes them.
    done: list[tuple[int, list[int]]] = field(default_factory=list)
    over: bool = False
    #: It takes no more.
    gone: bool = False

    def give_up(self, at: int | None, version: int) -> None:
        """Stop taking examples, having trained up to ``at``."""
        if self.span is not None and at is not None:
            self.done.append((version, [*self.span[:2], at]))
        self.span, self.gone = None, True


@dataclass(slots=True)
class _Worker:
    opened: dict[str, _Opened] = field(default_factory=dict)
    #: Questions without an answer, by number.
    asked: dict[int, Mapping[str, Any]] = field(default_factory=dict)


class ShardRelay:
    """All workers of one agent that request shards, or recently requested them."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        #: The coordinator's ledgers, as they were last told here.
        self._books = messages.Shared(version=0, books=b"{}")

    def asks(self, holder: str, number: int, body: Mapping[str, Any]) -> messages.Asked:
        """Return a worker's request as a message, and store the request until the coordinator has
        answered.
        """
        worker = self._workers.setdefault(holder, _Worker())
        worker.asked[number] = body
        return _asked(holder, number, body)

    def trained(self, holder: str, name: str, at: int) -> None:
        """Store that a worker has trained on everything before ``at`` in its shard."""
        worker = self._workers.get(holder)
        if worker is not None and name in worker.opened:
            worker.opened[name].at = at

    def answered(self, message: messages.Answered) -> Mapping[str, Any] | None:
        """Return the body of the coordinator's answer; None if no worker waits for it."""
        worker = self._workers.get(message.holder)
        asked = None if worker is None else worker.asked.pop(message.number, None)
        if worker is None or asked is None:
            return None
        body: Mapping[str, Any] = json.loads(message.body)
        if "error" not in body:
            _note(worker, asked, body, message.version)
        return body

    def shared(self, message: messages.Shared) -> None:
        """Store the coordinator's ledgers, and drop local facts that these already include."""
        self._books = message
        for holder, worker in list(self._workers.items()):
            for name, opened in list(worker.opened.items()):
                opened.done = [each for each in opened.done if each[0] > message.version]
                if opened.gone and not opened.done:
                    del worker.opened[name]
            if not worker.opened and not worker.asked:
                del self._workers[holder]

    def parted(self, holder: str) -> messages.Asked | None:
        """Store that a worker is gone, and return the message to the coordinator.

        Returns None if the worker never sent a request.
        """
        worker = self._workers.get(holder)
        if worker is None:
            return None
        worker.asked.clear()
        known = {name: each for name, each in worker.opened.items() if each.at is not None}
        at = {name: opened.at for name, opened in known.items()}
        spans = {name: opened.span for name, opened in known.items()}
        return self.asks(holder, 0, {"do": "part", "at": at, "spans": spans})

    def again(self) -> Iterator[messages.Message]:
        """Yield messages for another coordinator: the facts that it needs, and unanswered
        requests.
        """
        for holder, worker in self._workers.items():
            for opened in worker.opened.values():
                yield _asked(holder, -1, _resume(opened))
            for number, body in worker.asked.items():
                yield _asked(holder, number, body)
        yield self._books  # last: with it all is said


def _note(
    worker: _Worker, asked: Mapping[str, Any], answer: Mapping[str, Any], version: int
) -> None:
    match asked["do"]:
        case "open":
            worker.opened[asked["name"]] = _Opened(asked, answer["era"])
        case "close" if opened := worker.opened.get(asked["name"]):
            opened.give_up(asked["at"], version)
        case "part":
            for each in worker.opened.values():
                each.give_up(each.at, version)
        case "ask" if opened := worker.opened.get(asked["name"]):
            if asked["done"] is not None:
                opened.done.append((version, asked["done"]))
            opened.span, opened.at, opened.over = answer.get("span"), None, "over" in answer


def _resume(opened: _Opened) -> dict[str, Any]:
    done = [span for _, span in opened.done]
    said = {"do": "resume", "era": opened.era, "span": opened.span, "done": done}
    return {**opened.began, **said, "over": opened.over, "gone": opened.gone}


def _asked(holder: str, number: int, body: Mapping[str, Any]) -> messages.Asked:
    return messages.Asked(holder=holder, number=number, body=json.dumps(body).encode())
