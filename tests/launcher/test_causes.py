"""Scripts that fail, as a user starts them: the last line of ``brain-run`` names the cause."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

LEAVES_EARLY = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(4)
for step in range(3 if dist.get_rank() == 0 else 6):
    dist.all_reduce(value)
"""
CHAINED = """
try:
    with open("/dev/full", "w") as file:
        file.write("x" * 100000)
except OSError as error:
    raise RuntimeError("cannot save the model") from error
"""
SAVES = """
import sys, torch
torch.save({"weights": torch.ones(1 << 20)}, sys.argv[1])
"""
PICKLES = """
import pickle, sys
with open(sys.argv[1], "wb") as file:
    pickle.dump(b"x" * (1 << 22), file)
"""
DISTRIBUTED = """
import sys, torch, torch.distributed.checkpoint as dcp
dcp.save({"weights": torch.ones(1 << 20)}, checkpoint_id=sys.argv[1], no_dist=True)
"""
COPIES = """
import shutil, sys
with open("state", "wb") as file: file.write(bytes(1 << 22))
shutil.copy("state", sys.argv[1])
"""
COPIES_TREE = """
import os, shutil, sys
os.mkdir("states")
with open("states/first", "wb") as file: file.write(bytes(1 << 22))
shutil.copytree("states", sys.argv[1])
"""
SAFETENSORS = """
import sys, torch
from safetensors.torch import save_file
save_file({"weights": torch.ones(1 << 20)}, sys.argv[1])
"""
LIMITED_FILES = """
import resource, torch
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
torch.save({"weights": torch.ones(1 << 20)}, "model.pt")
"""
LIMITED = """
import resource, torch
resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
torch.ones(1 << 32)
"""

DETACHED = """
import io, sys
old = sys.stdout
sys.stdout = io.TextIOWrapper(old.detach())
raise OSError(28, "No space left on device")
"""


def last_line(
    tmp_path: Path,
    script: str,
    *arguments: str,
    workers: int = 1,
    output: int | None = None,
    shell: str = "",
    code: int = 1,
) -> str:
    """What ``brain-run`` says last of a script that fails with a code, and prints to ``output``;
    ``shell`` are commands before it.
    """
    (tmp_path / "train.py").write_text(script)
    run = subprocess.run(
        [
            *(("bash", "-c", f'{shell}; exec "$@"', "bash") if shell else ()),
            # Not "python -m launcher.cli": that imports the script's own modules itself.
            *(str(Path(sys.executable).with_name("brain-run")), f"--nproc-per-node={workers}"),
            *("train.py", *arguments),
        ],
        cwd=tmp_path,
        env=dict(os.environ) | {"HOME": str(tmp_path)},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=170,
    )
    assert run.returncode == code
    return run.stderr.splitlines()[-1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a full disk needs the right to mount one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_rank_that_ends_early_with_0_is_the_culprit_and_not_its_peer(tmp_path: Path) -> None:
    said = last_line(tmp_path, LEAVES_EARLY, workers=2)
    assert said.startswith("brain: rank 0 exited with code 0 on ")
    assert "while rank 1 still exchanged data with it (train.py:6)" in said


def test_the_origin_of_a_chained_exception_is_named(tmp_path: Path) -> None:
    said = last_line(tmp_path, CHAINED)
    assert "cannot save the model, raised from OSError: [Errno 28] No space left on device" in said
    assert "a read from storage or a write to it failed" in said


@pytest.mark.parametrize(
    ("script", "line", "part"),
    [
        (SAVES, 3, ""),
        (PICKLES, 4, ""),
        (DISTRIBUTED, 3, ""),
        (COPIES, 4, ""),
        (COPIES_TREE, 5, "first"),
        (SAFETENSORS, 4, ""),
    ],
    ids=["torch", "file", "dcp", "copy", "tree", "safetensors"],
)
def test_a_save_on_a_full_disk_names_the_path_and_the_line_of_the_script(
    script: str, line: int, part: str, tmp_path: Path, small_disk: Path
) -> None:
    if script is SAFETENSORS:
        pytest.importorskip("safetensors")
    path = small_disk / "model.pt"
    said = last_line(tmp_path, script, str(path))
    assert f"no space left to save {path / part} (train.py:{line})" in said
    assert "the disk is full" in said


def test_a_stream_that_was_taken_apart_does_not_hide_the_cause(tmp_path: Path) -> None:
    assert "OSError: [Errno 28] No space left on device" in last_line(tmp_path, DETACHED)


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    said = last_line(tmp_path, LIMITED_FILES)
    assert "its own limit on the size of files: RLIMIT_FSIZE is 1048576 bytes" in said


def test_a_limit_on_processor_time_is_named_if_it_may_have_ended_the_worker(tmp_path: Path) -> None:
    said = last_line(tmp_path, "while True: pass", shell="ulimit -t 8", code=128 + signal.SIGKILL)
    assert "its own limit on processor time (RLIMIT_CPU is 8 s), or a person or program" in said


def test_a_signal_to_the_parent_process_is_named_with_the_remedy(tmp_path: Path) -> None:
    script = "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)"
    said = last_line(tmp_path, script, code=128 + signal.SIGKILL)
    assert "SIGTERM ended the fork server" in said
    assert "BRAIN_OFF=1" in said


def test_an_output_that_nobody_reads_is_no_broken_connection(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    prints = "while True: print('line', flush=True)"
    try:
        said = last_line(tmp_path, prints, output=write)
    finally:
        os.close(write)
    assert "BrokenPipeError: [Errno 32] Broken pipe (train.py:1)" in said
    assert "the program that read its standard output has ended" in said


def test_a_limit_of_the_process_is_not_called_the_machines_memory(tmp_path: Path) -> None:
    said = last_line(tmp_path, LIMITED)
    assert "its own limit on memory, not the machine's: RLIMIT_AS is 8589934592 bytes" in said


def test_modules_of_the_scripts_own_do_not_hide_the_cause(tmp_path: Path) -> None:
    for name in ("resource.py", "traceback.py"):
        (tmp_path / name).write_text('raise SystemExit("imported by somebody else")')
    assert "KeyError: 'loss' (train.py:1)" in last_line(tmp_path, "print({}['loss'])")
