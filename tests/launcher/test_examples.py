"""A script becomes elastic by three lines, and asks the session what it asked its group."""

import difflib
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
#: What plain scripts ask of the process group and of the wrapper, a session answers.
ASKED = {
    "dist.get_world_size()": "session.size",
    "dist.get_rank()": "session.rank",
    "parallel(": "session.model(",
    "{step}": "{session.steps}",
    "(step, session": "(session.steps, session",
    "if step ": "if session.steps ",
}


def lines_of(name: str) -> list[str]:
    """Lines of an example's ``main``, without their indentation."""
    body = (EXAMPLES / name).read_text().partition("def main()")[2]
    return [line.strip() for line in body.splitlines()]


def test_three_lines_make_a_plain_script_elastic() -> None:
    plain = "\n".join(lines_of("ddp.py"))
    for asked, answered in ASKED.items():
        plain = plain.replace(asked, answered)

    changed = difflib.ndiff(plain.splitlines(), lines_of("ddp_elastic.py"))

    assert [line for line in changed if line[0] in "+-"] == [
        '- dist.init_process_group("gloo")',
        "- parallel = DistributedDataParallel(model)",
        "- for step in range(STEPS):",
        "+ session = elastic.join(model, optimizer)",
        "+ while session.steps < STEPS:",
        "+ with session.step():",
    ]


def test_workers_that_all_have_local_rank_0_join_one_session() -> None:
    brain_run = str(Path(sys.executable).parent / "brain-run")
    command = [brain_run, "--nproc-per-node=2", "--virtual-local-rank"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "ddp_elastic.py"), "1"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "0,1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "step 0: 2 workers" in done.stdout
