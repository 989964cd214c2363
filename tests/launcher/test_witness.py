"""The file that one half of a world can take: once, whoever asks, and whatever was lost."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from launcher import messages
from launcher.coordinator.witness_file import WitnessFile
from launcher.values.witness import WitnessObserved


async def offered(
    directory: Path, *, epoch: int = 1, rename: Callable[[str, str], None] = os.rename
) -> WitnessFile:
    """A coordinator's agent that wrote a witness for a world."""
    made = WitnessFile(rename)
    made.begin(epoch)
    await made.offer(str(directory / "step.pt"), job="j", epoch=epoch)
    return made


async def told(by: WitnessFile) -> WitnessFile:
    """A member that heard of it, and that it counts."""
    member = WitnessFile()
    member.begin(by.seen.epoch)
    await member.look(messages.Witness(epoch=by.seen.epoch, path=by.seen.path, in_force=True))
    return member


async def answer(witness: WitnessFile, replica: int) -> WitnessObserved:
    """Ask for it and wait for what comes of it."""
    witness.take(witness.seen, replica)
    while not (witness.seen.lost or witness.seen.trouble or witness.seen.holder is not None):
        await asyncio.sleep(0.001)
    return witness.seen


def test_of_two_that_ask_at_once_one_has_it(tmp_path: Path) -> None:
    async def both() -> list[WitnessObserved]:
        first = await offered(tmp_path)
        second = await told(first)
        return list(await asyncio.gather(answer(first, 0), answer(second, 1)))

    found = asyncio.run(both())

    assert sorted(seen.lost for seen in found) == [False, True]
    assert [seen.holder is None for seen in found] == [seen.lost for seen in found]


def test_a_witness_that_was_removed_is_nobodys(tmp_path: Path) -> None:
    async def ask() -> WitnessObserved:
        witness = await offered(tmp_path)
        Path(witness.seen.path).unlink()
        return await answer(witness, 0)

    assert asyncio.run(ask()).lost


def test_one_that_asks_again_still_has_it(tmp_path: Path) -> None:
    async def ask() -> WitnessObserved:
        witness = await offered(tmp_path)
        before = witness.seen
        await answer(witness, 3)
        witness.seen = before  # as after a lost answer
        return await answer(witness, 3)

    assert asyncio.run(ask()).holder == 3


def test_storage_that_hangs_holds_up_nobody_but_the_answer(tmp_path: Path) -> None:
    over = threading.Event()

    def hangs(source: str, target: str) -> None:
        over.wait(60)
        os.rename(source, target)

    async def ask() -> tuple[WitnessObserved, WitnessObserved]:
        witness = await offered(tmp_path, rename=hangs)
        witness.take(witness.seen, 0)
        await asyncio.sleep(0.05)
        meanwhile = witness.seen
        over.set()
        while witness.seen.holder is None:
            await asyncio.sleep(0.001)
        return meanwhile, witness.seen

    meanwhile, at_last = asyncio.run(ask())

    assert (meanwhile.asked, meanwhile.holder) == (True, None)
    assert at_last == replace(meanwhile, holder=0)


def test_storage_that_refuses_is_asked_again(tmp_path: Path) -> None:
    answers: Iterator[OSError | None] = iter([OSError(errno.EIO, "Input/output error"), None])

    def refuses_once(source: str, target: str) -> None:
        if refused := next(answers):
            raise refused
        os.rename(source, target)

    async def ask() -> tuple[WitnessObserved, WitnessObserved]:
        witness = await offered(tmp_path, rename=refuses_once)
        refused = await answer(witness, 0)
        while witness.seen.asked:
            await asyncio.sleep(0.01)
        witness.seen = replace(witness.seen, trouble="")
        return refused, await answer(witness, 0)

    refused, at_last = asyncio.run(ask())

    assert "Input/output error" in refused.trouble
    assert at_last.holder == 0


def test_a_member_that_sees_another_directory_says_so(tmp_path: Path) -> None:
    async def look() -> tuple[messages.Witnessed, WitnessObserved]:
        member = WitnessFile()
        member.begin(1)
        said = await member.look(messages.Witness(epoch=1, path=str(tmp_path / "elsewhere")))
        return said, member.seen

    said, seen = asyncio.run(look())

    assert not said.seen
    assert "this host does not see" in seen.trouble


def test_a_witness_in_force_stays_the_one_of_its_world(tmp_path: Path) -> None:
    async def look() -> tuple[messages.Witnessed, WitnessObserved]:
        member = await told(await offered(tmp_path))
        there = tmp_path / "another"
        there.touch()
        return await member.look(messages.Witness(epoch=1, path=str(there))), member.seen

    said, seen = asyncio.run(look())

    assert not said.seen
    assert "another" not in seen.path


def test_a_later_world_removes_what_an_earlier_one_left_and_the_end_removes_the_rest(
    tmp_path: Path,
) -> None:
    foreign = tmp_path / ".brain-witness-k-1-00"
    foreign.touch()

    async def worlds() -> tuple[list[str], list[str]]:
        await answer(await offered(tmp_path, epoch=1), 0)
        second = await offered(tmp_path, epoch=2)
        between = os.listdir(tmp_path)
        await answer(second, 0)
        await second.forget()
        return between, os.listdir(tmp_path)

    between, after = asyncio.run(worlds())

    assert [name[:18] for name in sorted(between)] == [".brain-witness-j-2", foreign.name[:18]]
    assert after == [foreign.name]


def test_no_pattern_for_checkpoints_finds_it(tmp_path: Path) -> None:
    asyncio.run(offered(tmp_path))

    assert os.listdir(tmp_path)
    assert [*tmp_path.glob("*.pt"), *tmp_path.glob("step*"), *tmp_path.glob("checkpoint-*")] == []
