"""The agent's side of a fork server that does not behave."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from brain.errors import Unavailable
from launcher.workers.fork_server.channel import Channel
from tests.launcher.building import soon


@asynccontextmanager
async def a_channel(serve: Callable[[socket.socket], None]) -> AsyncIterator[Channel]:
    """A channel to a server that does ``serve`` once it is asked for something."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    channel = Channel(sleeper, ours, lambda: None)
    loop = asyncio.get_running_loop()

    def asked() -> None:
        loop.remove_reader(theirs)
        serve(theirs)

    loop.add_reader(theirs, asked)
    try:
        yield channel
    finally:
        channel.close()
        theirs.close()
        assert sleeper.stdin is not None
        sleeper.stdin.close()


def test_a_worker_that_is_gone_before_it_can_be_watched_is_no_worker() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()

    def serve(theirs: socket.socket) -> None:
        order = json.loads(theirs.recv(1 << 16))
        theirs.send(json.dumps({"say": "forked", "id": order["id"], "pid": gone.pid}).encode())

    async def story() -> None:
        async with a_channel(serve) as channel:
            with pytest.raises(Unavailable, match="cannot be watched"):
                await soon(channel.make({"do": "fork"}, [0]))

    asyncio.run(story())
