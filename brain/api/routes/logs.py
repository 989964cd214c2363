"""Workers' output: from ``replicas/<job>/<id>/output.log`` of the state directory, or as the
scaler of a cluster's pool reads it there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from brain import errors
from brain.api.deps import AboutJob, JobRequest, OwnToken, TokenMonitor
from brain.api.problems import problems
from brain.api.routes.jobs import LOCAL
from brain.confinement import job_directory
from brain.types.job import Job
from brain.types.world import ReplicaState, World
from brain.views import LogsRequest, ScalerAnswer, ScalerRequest

router = APIRouter(prefix="/api/v1", tags=["watching"])

#: Seconds between looks for new lines; a person reads no faster.
_LOOK_SECONDS = 0.5
#: Bytes taken from one file at a time, so that one talkative replica does not hide the others.
_CHUNK = 256 * 1024


class Reader:
    """Reads whole lines from the files of a job's replicas, as they grow."""

    def __init__(self, directory: Path, replica: int | None, tail: int) -> None:
        self._directory = directory
        self._replica = replica
        self._tail = tail
        self._offsets: dict[Path, int] = {}

    def read(self) -> bytes:
        """Return new whole lines of all files; empty when there is nothing new."""
        return b"".join(self._new(path) for path in self._files())

    def rest(self) -> bytes:
        """Return the bytes after the last line end of each file, with a line end."""
        parts = []
        for path in self._files():
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                parts.append(file.read(_CHUNK))
        return b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts if part)

    def _files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        ids = sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdecimal())
        chosen = ids if self._replica is None else [id for id in ids if id == self._replica]
        files = [self._directory / str(id) / "output.log" for id in chosen]
        return [file for file in files if file.is_file()]

    def _new(self, path: Path) -> bytes:
        with path.open("rb") as file:
            if path not in self._offsets:
                self._offsets[path] = _start_of_tail(path, self._tail)
            file.seek(self._offsets[path])
            data = file.read(_CHUNK)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == _CHUNK:
            # A line longer than a chunk goes out in pieces.
            end = _CHUNK
        self._offsets[path] += end
        return data[:end]


@router.get(
    "/jobs/{job}/logs",
    response_class=StreamingResponse,
    responses=problems(errors.UnknownJob, errors.UnknownReplica)
    | {200: {"content": {"text/plain": {}}}},
)
async def job_logs(
    about: AboutJob,
    token: OwnToken,
    replica: Annotated[int | None, Query(ge=0)] = None,
    rank: Annotated[int | None, Query(ge=0, description="of the replica in its world")] = None,
    previous: Annotated[bool, Query(description="the one that was there before")] = False,
    tail: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
    follow: bool = False,
) -> StreamingResponse:
    """What the workers print, the last ``tail`` lines of each replica.

    ``follow`` goes on with new lines until the job has finished or the token has ended.
    """
    job = await run_in_threadpool(_job, about)
    chosen = await run_in_threadpool(_chosen, about, job, replica, rank, previous)
    directory = job_directory(about.here.home, job.id)
    if job.pool != LOCAL and not directory.is_dir():
        asked = LogsRequest(job=job.id, replica=chosen, tail=tail, follow=follow)
        parts = about.here.relay.ask(job.pool, ScalerRequest(id="", logs=asked))
        # A refusal has a status of its own, which is sent before the first line.
        first = await anext(parts)
        return StreamingResponse(_relayed(first, parts, token), media_type="text/plain")
    reader = Reader(directory, chosen, tail)
    return StreamingResponse(_lines(about, token, job, reader, follow), media_type="text/plain")


async def _relayed(
    first: ScalerAnswer, parts: AsyncGenerator[ScalerAnswer], token: TokenMonitor
) -> AsyncIterator[bytes]:
    async with aclosing(parts):
        yield first.text.encode()
        try:
            async for part in parts:
                if await token.ended():
                    return
                yield part.text.encode()
        except errors.BrainError as cut:
            yield f"brain: the output ends here: {cut}\n".encode()


async def _lines(
    about: JobRequest, token: TokenMonitor, job: Job, reader: Reader, follow: bool
) -> AsyncIterator[bytes]:
    while not await token.ended():
        # Asked before reading, so that what was printed before the end is still sent.
        finished = not follow or (await run_in_threadpool(_job, about)).finished
        while not about.here.bell.closed and (new := await run_in_threadpool(reader.read)):
            yield new
            if await token.ended():
                return
        if finished or about.here.bell.closed:
            yield await run_in_threadpool(reader.rest)
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _job(about: JobRequest) -> Job:
    with about.here.stores.transaction(read_only=True) as tx:
        return about.job(tx)


def _chosen(
    about: JobRequest, job: Job, replica: int | None, rank: int | None, previous: bool
) -> int | None:
    """Return the replica whose output is requested; None: all replicas.

    Raises:
        BadInput: two ways to name one are used.
        UnknownReplica: there is no such replica.
    """
    if replica is not None and (rank is not None or previous):
        raise errors.BadInput("replica names one by itself; leave out rank, previous", field="rank")
    with about.here.stores.transaction(read_only=True) as tx:
        replicas, worlds = tx.worlds.replicas(job.id), tx.worlds.of(job.id)
    if rank is not None:
        return _of_rank(job, worlds, rank, previous)
    if previous:
        ended = [one.id for one in replicas if one.state is ReplicaState.EXITED]
        if not ended:
            raise errors.UnknownReplica(f"no replica of {job.document.name} has ended yet")
        return max(ended)
    if replica is not None:
        _expect_replica(about, job, replica, [one.id for one in replicas])
    return replica


def _of_rank(job: Job, worlds: Sequence[World], rank: int, previous: bool) -> int:
    """Return the replica that has a rank in the newest world, or the one that had it before."""
    held = [m.replica for world in worlds for m in world.members if m.group_rank == rank]
    found = list(dict.fromkeys(held))[previous:]
    if not found:
        ranks = sorted({member.group_rank for world in worlds for member in world.members})
        had = f"its worlds had 0 to {ranks[-1]}" if ranks else "it had no world yet"
        before = " before the one that has it" if previous else ""
        raise errors.UnknownReplica(
            f"rank {rank}: no replica of {job.document.name} had it{before}; {had}"
        )
    return found[0]


def _expect_replica(about: JobRequest, job: Job, replica: int, known: list[int]) -> None:
    if replica in known or (job_directory(about.here.home, job.id) / str(replica)).is_dir():
        return
    had = ", ".join(map(str, known)) if known else "none yet"
    raise errors.UnknownReplica(
        f"replica {replica}: {job.document.name} had no such one; its replicas: {had}"
    )


def _start_of_tail(path: Path, lines: int) -> int:
    """Return the offset from which ``lines`` whole lines remain."""
    position = path.stat().st_size
    with path.open("rb") as file:
        left = lines
        while position > 0:
            start = max(0, position - _CHUNK)
            file.seek(start)
            block = file.read(position - start)
            found = block.count(b"\n")
            if found > left:
                return start + _nth_last_newline(block, left + 1) + 1
            left -= found
            position = start
    return 0


def _nth_last_newline(block: bytes, n: int) -> int:
    at = len(block)
    for _ in range(n):
        at = block.rfind(b"\n", 0, at)
    return at
