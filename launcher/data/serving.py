"""The coordinator's side of shards: methods take requests and the time, and return answers.

Sockets and clock are in ``launcher.coordinator.shards``. A coordinator that takes over is
*unsettled* at first: it collects its predecessor's files and the agents' knowledge. It answers no
request until every agent that may know something has reported or is gone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from brain.errors import BadInput, Conflict
from launcher.data.ledger import ShardLedger, ShardSpan, ShardTerms, whole
from launcher.data.questions import Body, ShardAnswer, ShardQuestion

#: Newest finished datasets that are remembered, in case a worker opens one late. A job may have one
#: for each evaluation, and each change sends all of them.
_FINISHED = 200


@dataclass(slots=True, kw_only=True)
class _Holder:
    replica: int
    #: Its name for users.
    label: str
    #: True if it was told that no shards are left.
    over: bool = False
    #: Meetings that it came to, or that passed it by.
    met: int = 0
    #: It asks for a shard, and there is none now.
    waits: ShardQuestion | None = None
    #: It is at a step boundary and wants the state there, at the latest then.
    cuts: ShardQuestion | None = None
    until: float = 0.0


@dataclass(slots=True)
class _Dataset:
    ledger: ShardLedger
    #: Epochs of the world that began it, from a checkpoint or anew, and of the newest in it.
    era: int
    world: int
    holders: dict[str, _Holder] = field(default_factory=dict)
    #: How often all met at a step boundary, and the state there the last time.
    meetings: int = 0
    last: Body = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """True if all examples are done, and all workers know it or are gone."""
        return self.ledger.over and all(each.over for each in self.holders.values())


class Serving:
    """All datasets of one job."""

    def __init__(self, *, settled: bool = True) -> None:
        self.settled = settled
        #: Rises with every change.
        self.version = 0
        self._datasets: dict[str, _Dataset] = {}
        #: Workers that have opened datasets, which have no holders once they are finished: the
        #: replica of each, and the epoch of the world in which it was started.
        self._present: dict[str, tuple[int, int]] = {}
        self._queue: list[ShardQuestion] = []

    def asked(self, question: ShardQuestion, now: float) -> list[ShardAnswer]:
        """Handle a request; return all answers that are due now."""
        if not self.settled:
            self._queue.append(question)
            return []
        return self._done(self._handle(question, now), now)

    def left(self, replica: int, now: float) -> list[ShardAnswer]:
        """Take back the shards of all workers of an agent that is gone; return all answers that are
        due now.
        """
        self._queue = [each for each in self._queue if each.replica != replica]
        self._present = {name: of for name, of in self._present.items() if of[0] != replica}
        for dataset in self._datasets.values():
            for holder, each in list(dataset.holders.items()):
                if each.replica == replica and self.settled:
                    self._part(dataset, holder, None)
        return self._done([], now)

    def turn(self, now: float) -> list[ShardAnswer]:
        """Take back shards that were held for too long, and end waits that took too long; return
        all answers that are due now.
        """
        late = list[ShardAnswer]()
        for dataset in self._datasets.values():
            after = dataset.ledger.lapse(now)
            self.version += after is not dataset.ledger
            dataset.ledger = after
            late += _late(dataset, now)
        return self._done(late, now)

    def adopt(self, version: int, dumped: Body, now: float) -> None:
        """Start with ledgers that the last coordinator wrote to disk or sent to an agent.

        Raises:
            BadInput: the ledgers are damaged; no part of them is used.
        """
        if self.settled or version < self.version:
            return
        with whole("what a coordinator keeps"):
            datasets = {name: _loaded(each, now) for name, each in dumped.items()}
        self.version, self._datasets = version, datasets

    def settle(self, now: float) -> list[ShardAnswer]:
        """Once all agents have reported, take back the shards of holders that did not report to
        this coordinator; return all answers that are due now.
        """
        if self.settled:
            return []
        self.settled, queue, self._queue = True, self._queue, []
        told = [each for each in queue if each.body["do"] == "resume"]
        back = {each.holder for each in told if not each.body["gone"]}
        for dataset in self._datasets.values():
            dataset.ledger = dataset.ledger.cut({})  # who is there says what it holds
            for holder in dataset.holders.keys() - back:
                del dataset.holders[holder]
            self.version += 1
        # The oldest world has the state that later ones joined; that somebody is gone has number 0.
        told.sort(key=lambda each: (each.body["era"], each.body["world"]))
        rest = [each for each in queue if each.body["do"] != "resume"]
        asked = [*told, *sorted(rest, key=lambda each: each.number)]
        return self._done([answer for each in asked for answer in self._handle(each, now)], now)

    def dump(self) -> dict[str, Any]:
        """Return all ledgers and open requests as plain values, for the next coordinator."""
        return {
            name: {
                "ledger": dataset.ledger.dump(),
                "era": dataset.era,
                "world": dataset.world,
                "meetings": dataset.meetings,
                "last": dataset.last,
                "holders": {
                    name: {"replica": e.replica, "label": e.label, "over": e.over, "met": e.met}
                    for name, e in dataset.holders.items()
                },
            }
            for name, dataset in self._datasets.items()
        }

    # --- questions -------------------------------------------------------------------------

    def _handle(self, question: ShardQuestion, now: float) -> list[ShardAnswer]:
        try:
            body = self._answer(question, now)
        except (BadInput, Conflict) as wrong:
            body = {"error": type(wrong).__name__, "text": str(wrong)}
        except (KeyError, TypeError, ValueError) as odd:  # of another shape: the asker's own error
            body = {
                "error": "BadInput",
                "text": f"{question.body['do']}: this request cannot be read: {odd!r}",
            }
        return [] if body is None else [ShardAnswer(question, body)]

    def _answer(self, question: ShardQuestion, now: float) -> Body | None:
        body = question.body
        match body["do"]:
            case "open":
                return self._open(question)
            case "resume":
                return self._resume(question, now)
            case "ask":
                return self._ask(question, now)
            case "cut":
                return self._cut(question, now)
            case "close":
                if (left := self._datasets.get(body["name"])) is not None:  # else it was forgotten
                    self._part(left, question.holder, body["at"])
                return {"ok": True}
            case "part":
                self._present.pop(question.holder, None)
                for name, dataset in self._datasets.items():
                    self._part(dataset, question.holder, _reached(dataset, question, name))
                return {"ok": True}
        raise BadInput(f"do: {body['do']!r} is not a known request", field="do")

    def _open(self, question: ShardQuestion) -> Body:
        """Begin a dataset, or take part in it.

        Workers of one world share the dataset that the first of them began. A later world begins
        anew from the state that it brings, because its training continues from a checkpoint. But if
        a worker of the world before is still there, the later world joins its dataset: training
        continues without a checkpoint.
        """
        body = question.body
        terms, world = ShardTerms(**body["terms"]), body["world"]
        dataset = self._datasets.get(terms.name)
        if dataset is None or (world > dataset.world and not self._continues(dataset)):
            dataset = self._begin(terms, body, era=world)
        terms.check(dataset.ledger.terms, where="in another worker")
        self._let_in(dataset, question)
        return {"ok": True, "era": dataset.era}

    def _continues(self, dataset: _Dataset) -> bool:
        """True if a worker of the dataset's worlds is still there."""
        here = any(world <= dataset.world for _, world in self._present.values())
        return bool(dataset.holders) or (dataset.ledger.over and here)

    def _begin(self, terms: ShardTerms, body: Body, *, era: int) -> _Dataset:
        dataset = _Dataset(ShardLedger.of(terms, body["state"]), era, era)
        self._datasets[terms.name] = dataset
        return dataset

    def _resume(self, question: ShardQuestion, now: float) -> Body:
        """Take an agent's report of a worker's shard and progress that the ledgers may lack."""
        body = question.body
        terms, era = ShardTerms(**body["terms"]), body["era"]
        dataset = self._datasets.get(terms.name)
        if not body["gone"]:
            self._present[question.holder] = question.replica, body["world"]
        if dataset is None and body["over"] and not body["done"]:  # forgotten long ago
            return {"ok": True}
        if dataset is None or era > dataset.era:
            dataset = self._begin(terms, body, era=era)
        if era < dataset.era:  # what it did went with the worlds that it was in
            return {"ok": True}
        done = [ShardSpan(*span) for span in body["done"]]
        held = None if body["span"] is None else ShardSpan(*body["span"])
        dataset.ledger = dataset.ledger.claim(question.holder, held, done, now)
        self._let_in(dataset, question).over = body["over"]
        if body["gone"]:
            self._part(dataset, question.holder, None)
        return {"ok": True}

    def _let_in(self, dataset: _Dataset, question: ShardQuestion) -> _Holder:
        label, world = question.body["label"], question.body["world"]
        self._present[question.holder] = question.replica, world
        dataset.world = max(dataset.world, world)
        holder = _Holder(replica=question.replica, label=label, met=dataset.meetings)
        self.version += 1
        return dataset.holders.setdefault(question.holder, holder)

    def _ask(self, question: ShardQuestion, now: float) -> Body | None:
        dataset = self._dataset(question)
        if self._knows_end(dataset, question):
            return {"over": True}
        holder = self._holder(question)
        said = question.body["done"]
        done = None if said is None else ShardSpan(*said)
        dataset.ledger, span = dataset.ledger.ask(question.holder, done, now)
        self.version += 1
        if span is not None:
            return {"span": span.plain()}
        if dataset.ledger.over:
            holder.over = True
            return {"over": True}
        if question.body["wait"]:
            holder.waits = question
            return None
        return {"wait": True}

    def _cut(self, question: ShardQuestion, now: float) -> Body | None:
        dataset = self._dataset(question)
        if self._knows_end(dataset, question):
            return {"state": dataset.ledger.cut({}).state()}
        holder = self._holder(question)
        if holder.met < dataset.meetings:  # it has nothing any more, so nobody waited for it
            holder.met = dataset.meetings
            return {"state": dataset.last}
        holder.cuts, holder.until = question, now + question.body["seconds"]
        return None

    # --- what follows ----------------------------------------------------------------------

    def _done(self, answers: list[ShardAnswer], now: float) -> list[ShardAnswer]:
        """Add the answers to workers that waited for this change."""
        for dataset in self._datasets.values():
            answers += self._served(dataset, now)
            answers += _met(dataset)
            self.version += bool(answers)
        self._forget_finished()
        return answers

    def _forget_finished(self) -> None:
        """Forget the holders of finished datasets, and the oldest of these datasets."""
        for dataset in self._datasets.values():
            if dataset.holders and dataset.finished:
                dataset.holders, dataset.last = {}, {}
                self.version += 1
        finished = [name for name, dataset in self._datasets.items() if dataset.finished]
        for name in finished[:-_FINISHED]:
            del self._datasets[name]
            self.version += 1

    def _served(self, dataset: _Dataset, now: float) -> Iterator[ShardAnswer]:
        for holder in list(dataset.holders.values()):
            question = holder.waits
            if question is None:
                continue
            holder.waits = None
            again = replace(question, body={**question.body, "done": None})
            yield from (ShardAnswer(question, answer.body) for answer in self._handle(again, now))

    def _part(self, dataset: _Dataset, holder: str, at: int | None) -> None:
        if dataset.holders.pop(holder, None) is not None:
            dataset.ledger = dataset.ledger.hand_back(holder, at)
            self.version += 1

    def _knows_end(self, dataset: _Dataset, question: ShardQuestion) -> bool:
        """True if the dataset had finished when this worker was one of its holders."""
        known = question.holder in self._present and question.holder not in dataset.holders
        return known and dataset.ledger.over

    def _dataset(self, question: ShardQuestion) -> _Dataset:
        name = question.body["name"]
        dataset = self._datasets.get(name)
        if dataset is None:
            known = ", ".join(sorted(self._datasets)) or "none"
            raise BadInput(
                f"name: there is no dataset {name} (open: {known}); open it first", field="name"
            )
        return dataset

    def _holder(self, question: ShardQuestion) -> _Holder:
        holder = self._dataset(question).holders.get(question.holder)
        if holder is None:
            raise BadInput(f"name: this worker has not opened {question.body['name']}; open it")
        return holder


def _loaded(dumped: Body, now: float) -> _Dataset:
    holders = {holder: _Holder(**known) for holder, known in dumped["holders"].items()}
    dataset = _Dataset(
        ShardLedger.load(dumped["ledger"], now), dumped["era"], dumped["world"], holders
    )
    dataset.meetings, dataset.last = dumped["meetings"], dumped["last"]
    return dataset


def _reached(dataset: _Dataset, question: ShardQuestion, name: str) -> int | None:
    """Return the example up to which a lost worker had trained its present shard; None if its agent
    knows only the progress in the previous shard, because the answer with the present shard never
    arrived.
    """
    body, held = question.body, dataset.ledger.doing.get(question.holder)
    at: int | None = body["at"].get(name)
    spans: Mapping[str, Any] = body.get("spans", {})  # agents of earlier releases send none
    same = held is None or name not in spans or spans[name] == held.span.plain()
    return at if same else None


def _met(dataset: _Dataset) -> list[ShardAnswer]:
    """Answer ``state_dict`` with one state, once every worker that may hold a shard has asked for
    it.
    """
    everybody = dataset.holders.values()
    asking = {name: each.cuts for name, each in dataset.holders.items() if each.cuts is not None}
    if not asking or any(_awaited(each) and each.cuts is None for each in everybody):
        return []
    at = {name: question.body["at"] for name, question in asking.items()}
    dataset.last = dataset.ledger.cut(at).state()
    dataset.meetings += 1
    for each in everybody:
        if each.cuts is not None or not each.over:
            each.cuts, each.met = None, dataset.meetings
    return [ShardAnswer(question, {"state": dataset.last}) for question in asking.values()]


def _awaited(holder: _Holder) -> bool:
    """True if the worker may hold a shard."""
    return not holder.over and holder.waits is None


def _late(dataset: _Dataset, now: float) -> Iterator[ShardAnswer]:
    missing = sorted(
        each.label for each in dataset.holders.values() if _awaited(each) and each.cuts is None
    )
    for each in dataset.holders.values():
        if each.cuts is not None and each.until <= now:
            seconds = each.cuts.body["seconds"]
            text = (
                f"state_dict: {', '.join(missing)} did not call it within {seconds:g} s; call "
                "it on every rank at the same step"
            )
            yield ShardAnswer(each.cuts, {"error": "Unavailable", "text": text})
            each.cuts = None
