"""Sends parts of steps between agents: on request, or to a partner on another host.

Each transfer has its own connection to the agent's port. The first message has the job's name and
the digest of its token, and the files follow in pieces. Nothing is ever unpickled.
"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from brain.errors import BadInput, Unavailable
from brain.types.world import Member
from launcher import messages
from launcher.messages import Connection
from launcher.values.ram_checkpoint import parts
from launcher.values.ram_checkpoint.parts import StepPart

PIECE_BYTES = 1 << 20
#: Bytes a second that a copy to another host may take of the network.
PUSH_BYTES_PER_SECOND = 250e6
_NAME = re.compile(r"\.metadata|[A-Za-z0-9_][A-Za-z0-9_.]*")


def buddy_of(members: Sequence[Member], replica: int) -> Member | None:
    """Return the member that keeps a second copy of ``replica``'s parts; None if there is no other
    member.

    It is the next member on another node, else the next member; the first member follows the last.
    """
    ranks = [member.replica for member in members]
    if replica not in ranks or len(ranks) < 2:
        return None
    at = ranks.index(replica)
    others = [*members[at + 1 :], *members[:at]]
    return next((each for each in others if each.node != members[at].node), others[0])


class PartSharing:
    """The parts of steps that one agent sends to others and receives from them."""

    def __init__(
        self, steps: Path, job: str, token_sha256: str, *, patience_seconds: float = 10.0
    ) -> None:
        """``patience_seconds`` is the limit for each answer and each piece, so that a host that
        hangs delays no other host.
        """
        self._steps, self._job, self._token = steps, job, token_sha256
        self._patience_seconds = patience_seconds

    async def fetch(self, addresses: Sequence[str], key: str, name: str) -> bool:
        """Fetch a file from the first address that has it; return False if none has it."""
        target = self._file(key, name)
        for address in addresses:
            if target.exists() or await self._fetch_from(address, target, key, name):
                return True
        return False

    async def serve(self, asked: messages.Fetch, connection: Connection) -> None:
        """Send a file that another agent requests.

        Raises:
            BadInput: the agent does not belong to this job.
        """
        self._check(asked.job, asked.token_sha256)
        try:
            await self._send(self._file(asked.key, asked.name), connection)
        except FileNotFoundError:
            connection.send(messages.Piece(missing=True))
        except TimeoutError:
            connection.abandon()

    async def push(self, address: str, part: StepPart) -> bool:
        """Copy a part to another agent; return True if that agent has it now."""
        directory = self._steps / str(part.key)
        try:
            async with self._patience():
                connection = await Connection.to(address)
        except (Unavailable, TimeoutError):
            return False
        try:
            told = json.dumps(asdict(part)).encode()
            connection.send(messages.Offer(job=self._job, token_sha256=self._token, part=told))
            for name in part.files:
                await self._send(directory / name, connection, PUSH_BYTES_PER_SECOND)
            taken = await connection.receive(messages.Taken, seconds=self._patience_seconds)
        except (OSError, BadInput):  # pruned meanwhile; it hangs; or somebody else's port
            return False
        finally:
            await connection.close()
        if taken is not None and taken.ok:
            (directory / f"safe-{part.rank}").touch()
        return taken is not None and taken.ok

    async def take(self, offer: messages.Offer, connection: Connection) -> None:
        """Keep a part that another agent pushes.

        Raises:
            BadInput: the agent does not belong to this job, or sends no valid part.
        """
        self._check(offer.job, offer.token_sha256)
        part = self._offered(offer.part)
        connection.send(messages.Taken(ok=await self._keep(part, connection)))

    async def _keep(self, part: StepPart, connection: Connection) -> bool:
        # Its sender may have lost the connection, and send it a second time beside the first.
        writing = self._steps / f".taking-{part.key}-{part.rank}-{os.urandom(4).hex()}"
        try:
            if part.bytes > parts.room(self._steps):  # the steps of our own workers come first
                return False
            writing.mkdir()
            if not await self._receive_all(connection, [writing / name for name in part.files]):
                return False
            parts.publish(self._steps, writing, part)
            parts.prune(self._steps, rank=part.rank)
        except OSError:  # no room after all, or given back at this moment
            return False
        finally:
            shutil.rmtree(writing, ignore_errors=True)
        return True

    def _offered(self, told: bytes) -> StepPart:
        try:
            part = msgspec.json.decode(told, type=StepPart)
        except msgspec.DecodeError as bad:
            raise BadInput(f"not a valid part of a checkpoint: {bad}", field="part") from bad
        for name in (*part.files, "state.pt"):
            self._file(str(part.key), name)
        return replace(part, copied=True)

    async def _fetch_from(self, address: str, target: Path, key: str, name: str) -> bool:
        try:
            async with self._patience():
                connection = await Connection.to(address)
        except (Unavailable, TimeoutError):
            return False
        try:
            connection.send(
                messages.Fetch(job=self._job, token_sha256=self._token, key=key, name=name)
            )
            target.parent.mkdir(exist_ok=True)
            half = target.with_name(f".half-{target.name.lstrip('.')}-{os.urandom(4).hex()}")
            if not await self._receive(connection, half):
                return False
            os.replace(half, target)
            return True
        except BadInput:  # somebody else's port
            return False
        finally:
            await connection.close()

    def _file(self, key: str, name: str) -> Path:
        """Return the path of a file of a step.

        Raises:
            BadInput: the name leads out of the directory.
        """
        if not re.fullmatch(r"\d+-\d+", key) or not _NAME.fullmatch(name):
            raise BadInput(f"{key}/{name} is not a file of a checkpoint", field="name")
        return self._steps / key / name

    def _check(self, job: str, token_sha256: str) -> None:
        if job != self._job or not messages.same(token_sha256, self._token):
            raise BadInput("the peer does not have the job's token", field="token_sha256")

    # --- pieces ----------------------------------------------------------------------------

    def _patience(self) -> asyncio.Timeout:
        return asyncio.timeout(self._patience_seconds)

    async def _send(
        self, path: Path, connection: Connection, per_second: float | None = None
    ) -> None:
        with path.open("rb") as file:
            left = os.fstat(file.fileno()).st_size
            while True:
                data = file.read(PIECE_BYTES)
                left -= len(data)
                connection.send(messages.Piece(data=data, last=left <= 0))
                async with self._patience():
                    await connection.flush()
                if left <= 0:
                    return
                if per_second is not None:
                    await asyncio.sleep(len(data) / per_second)

    async def _receive_all(self, connection: Connection, targets: Sequence[Path]) -> bool:
        for target in targets:
            if not await self._receive(connection, target):
                return False
        return True

    async def _receive(self, connection: Connection, target: Path) -> bool:
        """Write received pieces to ``target``; if some are missing, return False and leave no
        file.
        """
        whole = False
        try:
            with target.open("wb") as file:
                while not whole and (piece := await self._piece(connection)) is not None:
                    if piece.missing:
                        break
                    file.write(piece.data)
                    whole = piece.last
        except OSError:  # no room; or nothing comes any more
            whole = False
        finally:
            if not whole:
                target.unlink(missing_ok=True)
        return whole

    async def _piece(self, connection: Connection) -> messages.Piece | None:
        return await connection.receive(messages.Piece, seconds=self._patience_seconds)
