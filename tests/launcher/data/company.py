"""Agents, workers and coordinators that share out a dataset, without a process or a clock."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from launcher import messages
from launcher.data.ledger import ShardSpan, ShardTerms
from launcher.data.questions import ShardAnswer, ShardQuestion
from launcher.data.relay import ShardRelay
from launcher.data.serving import Serving

NAME = "train"


@dataclass(eq=False)
class Worker:
    """What ``Shards`` is to a script."""

    agent: "Agent"
    holder: str
    span: ShardSpan | None = None
    #: Handed out up to here.
    at: int = 0
    number: int = 0
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class Agent:
    """One replica."""

    replica: int
    relay: ShardRelay = field(default_factory=ShardRelay)
    workers: list[Worker] = field(default_factory=list)


class Company:
    """A job. ``trained`` is what the network has in it: (epoch, example) and how often."""

    def __init__(self, terms: ShardTerms, workers: int) -> None:
        self.terms, self.now, self.world, self._made = terms, 0.0, 1, 0
        self.trained: Counter[tuple[int, int]] = Counter()
        self.saved: tuple[Counter[tuple[int, int]], Any] = (Counter(), None)
        self.serving, self.disk = Serving(), ""
        self.agents: list[Agent] = []
        for _ in range(workers):
            self.join()

    @property
    def workers(self) -> list[Worker]:
        """Of all agents."""
        return [worker for agent in self.agents for worker in agent.workers]

    # --- what happens ----------------------------------------------------------------------

    def grow(self) -> None:
        """A worker joins those that go on."""
        self.world += 1
        self.join()

    def join(self, state: Any = None, agent: Agent | None = None) -> None:
        """One more worker, of another agent unless given."""
        if agent is None:
            agent = Agent(self._made)
            self.agents.append(agent)
        worker = Worker(agent, f"w{self._made}")
        self._made += 1
        agent.workers.append(worker)
        self._ask(
            worker,
            do="open",
            terms=asdict(self.terms),
            state=state,
            world=self.world,
            label=worker.holder,
        )

    def train(self, worker: Worker, count: int, *, lost: bool = False, disk: bool = True) -> None:
        """Take up to ``count`` examples and train them; ``lost``: the coordinator is gone before
        it can answer, and the next one finds its files (``disk``) or does not."""
        if worker.span is None or worker.at == worker.span.stop:
            done = None if worker.span is None else worker.span.plain()
            worker.span = None
            after = disk if lost else None
            answer = self._ask(worker, do="ask", done=done, wait=False, lost=after)
            worker.span = ShardSpan(*answer["span"]) if "span" in answer else None
            if worker.span is None:
                return
            worker.at = worker.span.start
        stop = min(worker.at + count, worker.span.stop)
        self.trained.update((worker.span.epoch, each) for each in range(worker.at, stop))
        worker.at = stop
        worker.agent.relay.trained(worker.holder, NAME, worker.at)

    def save(self) -> None:
        """A checkpoint: all are at a step boundary."""
        numbers = [
            self._send(worker, do="cut", at=worker.at if worker.span else None, seconds=1.0)
            for worker in self.workers
        ]
        states = [w.answers.pop(n)["state"] for w, n in zip(self.workers, numbers, strict=True)]
        assert all(state == states[0] for state in states)
        self.saved = (self.trained.copy(), json.loads(json.dumps(states[0])))

    def restart(self, workers: int) -> None:
        """All workers end, and agents beyond ``workers`` die; another world goes on from the
        checkpoint."""
        for agent in self.agents[workers:]:
            self.lose(agent)
        for worker in self.workers:
            self.kill(worker)
        self.trained, state = self.saved[0].copy(), self.saved[1]
        self.world += 1
        for number in range(workers):
            self.join(state, self.agents[number] if number < len(self.agents) else None)

    def lose(self, agent: Agent) -> None:
        """An agent dies, and its workers with it."""
        self.agents.remove(agent)
        self._deliver(self.serving.left(agent.replica, self.now))

    def kill(self, worker: Worker, *, asking: bool = False) -> None:
        """A worker dies after a step; its agent lives, and so do the others. ``asking``: if it has
        no example left, it dies while the answer with its next shard is on its way."""
        late: list[ShardAnswer] = []
        if asking and (worker.span is None or worker.at == worker.span.stop):
            done = None if worker.span is None else worker.span.plain()
            body = self._said({"do": "ask", "done": done, "wait": False})
            message = worker.agent.relay.asks(worker.holder, self._next(worker), body)
            late = self.serving.asked(self._question(worker.agent, message), self.now)
        worker.agent.workers.remove(worker)
        parted = worker.agent.relay.parted(worker.holder)
        if parted is not None:
            self._hear(worker.agent, parted)
        self._deliver(late)

    def leave(self, worker: Worker) -> None:
        """A worker says goodbye."""
        self._ask(worker, do="close", at=worker.at if worker.span else None)
        worker.agent.workers.remove(worker)

    def tell_books(self) -> None:
        """Heartbeats: agents hear of the coordinator's books."""
        books = json.dumps(self.serving.dump()).encode()
        for agent in self.agents:
            agent.relay.shared(messages.Shared(version=self.serving.version, books=books))

    def take_over(self, *, disk: bool) -> None:
        """Another coordinator, which finds the files of the one before or does not."""
        before, self.serving = self.serving, Serving(settled=False)
        if disk:
            self.serving.adopt(before.version, before.dump(), self.now)
        for agent in self.agents:
            for message in agent.relay.again():
                self._hear(agent, message)
        self._deliver(self.serving.settle(self.now))

    # --- frames ----------------------------------------------------------------------------

    def _ask(self, worker: Worker, *, lost: bool | None = None, **body: Any) -> dict[str, Any]:
        if lost is not None:  # the question is heard and answered, and the answer never comes
            message = worker.agent.relay.asks(worker.holder, self._next(worker), self._said(body))
            self.serving.asked(self._question(worker.agent, message), self.now)
            self.take_over(disk=lost)
            number = message.number
        else:
            number = self._send(worker, **body)
        answer = worker.answers.pop(number)
        assert "error" not in answer, answer
        return answer

    def _send(self, worker: Worker, **body: Any) -> int:
        message = worker.agent.relay.asks(worker.holder, self._next(worker), self._said(body))
        self._hear(worker.agent, message)
        return message.number

    def _next(self, worker: Worker) -> int:
        worker.number += 1
        return worker.number

    def _said(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"name": NAME, **body}

    def _question(self, agent: Agent, message: messages.Asked) -> ShardQuestion:
        body = json.loads(message.body)
        return ShardQuestion(
            replica=agent.replica, holder=message.holder, number=message.number, body=body
        )

    def _hear(self, agent: Agent, message: messages.Message) -> None:
        if isinstance(message, messages.Shared):
            self.serving.adopt(message.version, json.loads(message.books), self.now)
        elif isinstance(message, messages.Asked):
            self._deliver(self.serving.asked(self._question(agent, message), self.now))

    def _deliver(self, answers: list[ShardAnswer]) -> None:
        agents = {agent.replica: agent for agent in self.agents}
        for answer in answers:
            question = answer.question
            agent = agents[question.replica]
            body = agent.relay.answered(
                messages.Answered(
                    holder=question.holder,
                    number=question.number,
                    version=self.serving.version,
                    body=json.dumps(answer.body).encode(),
                )
            )
            for worker in agent.workers:
                if worker.holder == question.holder and body is not None:
                    worker.answers[question.number] = dict(body)
