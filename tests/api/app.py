"""The app over stores in memory, and clients of every role."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from cryptography.fernet import Fernet
from fastapi import FastAPI

from brain import calls
from brain.api import auth
from brain.api.app import create_app
from brain.api.secrets import Seal
from brain.client import AsyncBrainClient, BrainClient
from brain.inmemory import MemoryStores
from brain.ports import Stores
from brain.settings import Settings
from brain.types.job import JobId, JobState
from brain.types.record import Role
from tests.builders import NOW, at, host, node, throughput, world

URL = "http://127.0.0.1:8080"


class AppTransport(httpx2.BaseTransport):
    """Calls an app without a network; each request has an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._transport = httpx2.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        async def send() -> httpx2.Response:
            response = await self._transport.handle_async_request(request)
            body = b"".join([chunk async for chunk in response.aiter_raw()])
            return httpx2.Response(response.status_code, headers=response.headers, content=body)

        return asyncio.run(send())


@dataclass
class Api:
    """An app, its stores and its clock."""

    home: Path
    settings: Settings = field(default_factory=Settings)
    stores: Stores = field(default_factory=MemoryStores)
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.woken = 0
        self.app = create_app(
            self.stores,
            self.settings,
            lambda: self.now,
            home=self.home,
            seal=Seal(Fernet.generate_key()),
            wake=self._wake,
        )
        self.context = self.app.state.context

    def _wake(self) -> None:
        self.woken += 1

    def pass_time(self, **duration: float) -> None:
        """Move the clock on (or back)."""
        self.now += timedelta(**duration)

    def token(self, role: Role = Role.ADMIN, *, name: str = "", job: str | None = None) -> str:
        """The secret of a new token."""
        token, secret = auth.mint(
            name or role, role, now=self.now, job=None if job is None else JobId(job)
        )
        with self.stores.transaction() as tx:
            tx.access.add_token(token)
        return secret

    def client(self, role: Role = Role.ADMIN, **token: Any) -> BrainClient:
        """A client whose token has this role."""
        return BrainClient(URL, self.token(role, **token), transport=AppTransport(self.app))

    def aclient(self, role: Role = Role.ADMIN, **token: Any) -> AsyncBrainClient:
        """The same for asyncio."""
        return AsyncBrainClient(
            URL, self.token(role, **token), transport=httpx2.ASGITransport(self.app)
        )

    def http(self, secret: str = "") -> httpx2.Client:
        """A bare client, for what ``BrainClient`` would never send."""
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx2.Client(base_url=URL, transport=AppTransport(self.app), headers=headers)

    def add_node(self, cpus: int = 4) -> None:
        """Let a node register."""
        with self.stores.transaction() as tx:
            tx.nodes.put(node(cpus=cpus, seen_at=self.now))


def digits(**fields: Any) -> dict[str, Any]:
    """A job document as a person writes it."""
    given = {"name": "digits", "command": ["python", "t.py"], "replicas": {"min": 1, "max": 4}}
    return given | fields


def run_for_a_minute(api: Api, name: str = "digits") -> JobId:
    """Let a job run for a minute, two workers in step."""
    with api.client() as admin:
        id = admin.send(calls.submit(digits(name=name, steps=10_000))).id
    with api.stores.transaction() as tx:
        job = tx.jobs.get(id).moved(JobState.STARTING, "fits", at(0))
        tx.jobs.put(job.moved(JobState.RUNNING, "steps", at(0)))
        tx.worlds.put(replace(world(1, replicas=2, stepping_at=at(0)), job=id))
        samples = [
            throughput(n, job=id, rank=rank, replicas=2, processes=2)
            for n in range(60)
            for rank in range(2)
        ]
        tx.telemetry.add([*samples, host(30, job=id)], received_at=at(60))
    api.now = at(60)
    return id
