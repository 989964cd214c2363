"""Amounts as people type them, and the command that edits a running job."""

import click
import pytest
from click.testing import CliRunner

from brain.cli.amounts import CPU, MEMORY
from brain.cli.plans import edit
from tests.cli.test_commands import SOMEWHERE


@pytest.mark.parametrize(
    ("said", "bytes"),
    [
        ("2Gi", 2**31),
        ("2 GiB", 2**31),
        ("1.5G", 1_500_000_000),
        ("512Mi", 2**29),
        ("1048576", 2**20),
    ],
)
def test_memory_is_read_as_people_write_it(said: str, bytes: int):
    assert MEMORY.convert(said, None, None) == bytes


@pytest.mark.parametrize(("said", "millis"), [("1.5", 1500), ("250m", 250), ("2", 2000)])
def test_cpu_is_read_as_people_write_it(said: str, millis: int):
    assert CPU.convert(said, None, None) == millis


@pytest.mark.parametrize("said", ["-2Gi", "much", "2Qi", "", "1.2.3G"])
def test_what_is_no_amount_is_refused_with_an_example(said: str):
    with pytest.raises(
        click.BadParameter, match=("is not a valid amount of memory; write 2Gi, 512Mi or 2G")
    ):
        MEMORY.convert(said, None, None)


def test_an_edit_of_nothing_is_refused_before_anything_is_asked():
    ran = CliRunner().invoke(edit, ["digits"], env=SOMEWHERE)
    assert ran.exit_code == 2
    assert "give --cpu, --memory, --replicas, --gpus or --batch" in ran.output
