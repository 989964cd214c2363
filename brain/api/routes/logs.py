"""Workers' output, read from ``replicas/<job>/<id>/output.log`` in the state directory.

If the job runs in a cluster, the scaler of the job's pool reads the output in the cluster.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

from fastapi import Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from brain import errors
from brain.api import routers
from brain.api.deps import AboutJob, JobRequest, OwnToken, TokenMonitor
from brain.api.problems import problems
from brain.api.submissions import LOCAL
from brain.confinement import job_directory
from brain.types.job import Job
from brain.types.world import ReplicaState, World
from brain.views import LogsRequest, ScalerAnswer, ScalerRequest

router = routers.router("watching")

#: Seconds between checks for new lines; a person reads no faster.
_LOOK_SECONDS = 0.5
#: Bytes taken from one file at a time, so that one talkative replica does not hide the others.
_CHUNK = 256 * 1024


class _Place(NamedTuple):
    """The position up to which a file was read; the file may have been renamed since."""

    inode: int
    offset: int


class Reader:
    """Reads whole lines from the files of a job's replicas, as they grow."""

    def __init__(self, directory: Path, replica: int | None, tail: int) -> None:
        self._directory = directory
        self._replica = replica
        self._tail = tail
        self._places: dict[Path, _Place] = {}

    def read(self) -> bytes:
        """Return new whole lines of all files; empty when there is nothing new."""
        return b"".join(self._new(path) for path in self._files())

    def rest(self) -> bytes:
        """Return the unfinished last line of each file, and end each of these lines
        with a newline.
        """
        parts = []
        for path in self._files():
            with _generations(path) as files:
                parts += [_read(*self._found(path, files))] if files else []
        return b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts if part)

    def _files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        ids = sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdecimal())
        chosen = ids if self._replica is None else [id for id in ids if id == self._replica]
        files = [self._directory / str(id) / "output.log" for id in chosen]
        return [file for file in files if file.is_file()]

    def _new(self, path: Path) -> bytes:
        with _generations(path) as files:
            if not files:
                return b""
            file, offset = self._found(path, files)
            data = _read(file, offset)
            if not data and file is not files[-1]:
                # The agent has begun another file, and this one was read to its end.
                file, offset = files[-1], 0
                data = _read(file, offset)
            end = data.rfind(b"\n") + 1
            if end == 0 and data and file is not files[-1]:
                # A full disk cut the last line there, and nothing follows.
                self._places[path] = _Place(_inode(file), offset + len(data))
                return data + b"\n"
            if end == 0 and len(data) == _CHUNK:
                # A line longer than a chunk goes out in pieces.
                end = _CHUNK
            self._places[path] = _Place(_inode(file), offset + end)
            return data[:end]

    def _found(self, path: Path, files: Sequence[BinaryIO]) -> tuple[BinaryIO, int]:
        """Return the file to continue with and the offset in it."""
        place = self._places.get(path)
        if place is None:
            return _start_of_tail(files, self._tail)
        for file in files:
            if _inode(file) == place.inode and place.offset <= os.fstat(file.fileno()).st_size:
                return file, place.offset
        # The job has printed more since the last check than is kept.
        return files[0], 0


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
    rank: Annotated[int | None, Query(ge=0, description="rank of the replica in its world")] = None,
    previous: Annotated[bool, Query(description="the previous replica with this rank")] = False,
    tail: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
    follow: bool = False,
    heartbeat: Annotated[
        bool, Query(description="send a NUL byte whenever no line came for heartbeat_seconds")
    ] = False,
) -> StreamingResponse:
    """Return the output of the workers: the last ``tail`` lines of each replica.

    With ``follow``, new lines are sent until the job finishes or the token becomes invalid. With
    ``heartbeat``, proxies that close silent connections keep this one open; ignore NUL bytes at the
    beginning of a line.
    """
    every = about.here.settings.heartbeat_seconds if heartbeat else None
    job = await run_in_threadpool(_job, about)
    chosen = await run_in_threadpool(_chosen, about, job, replica, rank, previous)
    directory = job_directory(about.here.home, job.id)
    if job.pool != LOCAL and not directory.is_dir():
        asked = LogsRequest(job=job.id, replica=chosen, tail=tail, follow=follow)
        parts = about.here.relay.ask(job.pool, ScalerRequest(id="", logs=asked))
        # A refusal has a status of its own, which is sent before the first line.
        first = await anext(parts)
        return _streamed(_relayed(first, parts, token), every)
    reader = Reader(directory, chosen, tail)
    return _streamed(_lines(about, token, job, reader, follow), every)


def _streamed(lines: AsyncGenerator[bytes], heartbeat: float | None) -> StreamingResponse:
    parts = lines if heartbeat is None else with_heartbeat(lines, heartbeat)
    # nginx would otherwise hold lines back until they fill its buffers.
    return StreamingResponse(parts, media_type="text/plain", headers={"X-Accel-Buffering": "no"})


async def with_heartbeat(parts: AsyncGenerator[bytes], seconds: float) -> AsyncGenerator[bytes]:
    """Yield ``parts``, and a NUL byte whenever none comes for some seconds."""
    async with aclosing(parts):
        following: asyncio.Future[bytes] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(parts))
                done, _ = await asyncio.wait((following,), timeout=seconds)
                if not done:
                    yield b"\0"
                    continue
                try:
                    part = following.result()
                except StopAsyncIteration:
                    return
                following = None
                yield part
        finally:
            if following is not None:
                following.cancel()
                await asyncio.wait((following,))


async def _relayed(
    first: ScalerAnswer, parts: AsyncGenerator[ScalerAnswer], token: TokenMonitor
) -> AsyncGenerator[bytes]:
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
) -> AsyncGenerator[bytes]:
    while not await token.ended():
        # Checked before reading, so that everything printed before the end is still sent.
        finished = not follow or await run_in_threadpool(_has_ended, about, job)
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


def _has_ended(about: JobRequest, job: Job) -> bool:
    """Return True if the job has ended; its name may belong to a later job by now."""
    with about.here.stores.transaction(read_only=True) as tx:
        return tx.jobs.get(job.id).finished


def _chosen(
    about: JobRequest, job: Job, replica: int | None, rank: int | None, previous: bool
) -> int | None:
    """Return the replica whose output is requested; None: all replicas.

    Raises:
        BadInput: two ways to name one are used.
        UnknownReplica: there is no such replica.
    """
    if replica is not None and (rank is not None or previous):
        raise errors.BadInput(
            "replica already selects one replica by its id; leave rank and previous out",
            field="rank",
        )
    with about.here.stores.transaction(read_only=True) as tx:
        replicas, worlds = tx.worlds.replicas(job.id), tx.worlds.of(job.id)
    if rank is not None:
        return _of_rank(job, worlds, rank, previous)
    if previous:
        ended = [one.id for one in replicas if one.state is ReplicaState.EXITED]
        if not ended:
            raise errors.UnknownReplica(
                f"no replica of {job.document.name} has ended yet; leave `previous` out"
            )
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
        had = (
            f"the job's worlds had ranks 0 to {ranks[-1]}"
            if ranks
            else "the job has not formed a world yet"
        )
        before = " before the present replica" if previous else ""
        raise errors.UnknownReplica(
            f"rank {rank}: no replica of {job.document.name} had this rank{before}; {had}"
        )
    return found[0]


def _expect_replica(about: JobRequest, job: Job, replica: int, known: list[int]) -> None:
    if replica in known or (job_directory(about.here.home, job.id) / str(replica)).is_dir():
        return
    had = ", ".join(map(str, known)) if known else "none yet"
    raise errors.UnknownReplica(
        f"replica {replica}: {job.document.name} never had this replica; its replicas: {had}"
    )


@contextmanager
def _generations(path: Path) -> Iterator[list[BinaryIO]]:
    """Open a log and the file that was the log before it, oldest first; none while the agent is
    beginning another.
    """
    with ExitStack() as opened:
        files: list[BinaryIO] = []
        # Open the log first: if the agent renames it meanwhile, it is found twice instead of
        # missed.
        for each in (path, path.with_name(f"{path.name}.1")):
            # A job could leave a named pipe there, and opening it would block for ever.
            if each.is_file():
                with suppress(FileNotFoundError):
                    files.insert(0, opened.enter_context(each.open("rb")))
        yield files[-1:] if len({_inode(file) for file in files}) == 1 else files


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _read(file: BinaryIO, offset: int) -> bytes:
    file.seek(offset)
    return file.read(_CHUNK)


def _start_of_tail(files: Sequence[BinaryIO], lines: int) -> tuple[BinaryIO, int]:
    """Return the file and the offset from which ``lines`` whole lines remain."""
    left = lines
    for file in reversed(files):
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - _CHUNK)
            file.seek(start)
            block = file.read(position - start)
            found = block.count(b"\n")
            if found > left:
                return file, start + _nth_last_newline(block, left + 1) + 1
            left -= found
            position = start
    return files[0], 0


def _nth_last_newline(block: bytes, n: int) -> int:
    at = len(block)
    for _ in range(n):
        at = block.rfind(b"\n", 0, at)
    return at
