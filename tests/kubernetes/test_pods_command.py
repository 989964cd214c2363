"""What a container's command starts, and what a shell in front of it leaves to us."""

import pytest

from scaler.kubernetes.kinds.documents import launch_of
from scaler.kubernetes.pods.command import ContainerEntry, read_command

SEED = "dlrover-run --network-check --nnodes=1:10 --nproc_per_node=1 --max_restarts=10 a.py --b 1"


def shell(text: str, *args: str) -> tuple[str, ...]:
    return ("/bin/bash", "-c", text, *args)


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        (("torchrun", "train.py"), ContainerEntry.TORCHRUN),
        (
            ("/usr/bin/python3.8", "-m", "torch.distributed.run", "train.py"),
            ContainerEntry.TORCHRUN,
        ),
        (("python", "-m", "torch.distributed.launch", "train.py"), ContainerEntry.LAUNCH),
        (("brain-run", "train.py"), ContainerEntry.OURS),
        (("python", "-m", "dlrover.trainer.torch.main", "train.py"), ContainerEntry.OURS),
        (("python", "-mtorch.distributed.run", "train.py"), ContainerEntry.TORCHRUN),
        (("python", "/usr/bin/torchrun", "train.py"), ContainerEntry.TORCHRUN),
        (("nice", "brain-run", "train.py"), ContainerEntry.OPAQUE),
        (("python", "-u", "train.py"), ContainerEntry.PYTHON),
        (("python", "-W", "ignore", "-m", "trainer"), ContainerEntry.PYTHON),
        (("./start", "train.py"), ContainerEntry.OPAQUE),
        ((), ContainerEntry.OPAQUE),
        (shell(SEED), ContainerEntry.OURS),
        (shell("cd /src && torchrun train.py"), ContainerEntry.TORCHRUN),
        (shell("pip install x; python train.py | tee log"), ContainerEntry.OPAQUE),
    ],
)
def test_the_entry_point_is_recognised(words: tuple[str, ...], entry: ContainerEntry):
    assert read_command(words).entry is entry


def test_the_articles_command_is_taken_out_of_its_shell():
    found = read_command(shell(SEED))

    assert found.argv == tuple(SEED.split())
    assert not found.shell


def test_directories_and_variables_in_front_are_ours_to_set():
    found = read_command(shell("set -e; export A=1 B='x y'\ncd /src && C=2 exec torchrun t.py"))

    assert (found.directory, found.argv) == ("/src", ("torchrun", "t.py"))
    assert found.exports == {"A": "1", "B": "x y", "C": "2"}


@pytest.mark.parametrize(
    "text",
    ["dlrover-run --nnodes=$N t.py", "dlrover-run t.py > log", "a; dlrover-run t.py", "x `y`"],
)
def test_what_only_a_shell_can_do_stays_with_it(text: str):
    found = read_command(shell(text))

    assert (found.shell, found.argv) == (True, shell(text))


def test_arguments_behind_the_text_stay_with_the_shell():
    assert read_command(shell("torchrun $0", "t.py")).entry is ContainerEntry.OPAQUE


def test_a_quote_that_is_never_closed_is_the_shells_affair():
    assert read_command(shell("torchrun 'x")).shell


@pytest.mark.parametrize("how", ["-m dlrover.trainer.torch.main", "/usr/local/bin/dlrover-run"])
def test_bounds_are_seen_however_the_launcher_is_called(how: str):
    assert launch_of(f"python -u {how} --nnodes=1:4 train.py".split()).nodes == (1, 4)
