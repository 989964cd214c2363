"""The programs of the corpus: where each comes from, how it is started, what it promises."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"

#: What each environment holds beside torch, whose release ``constraints.txt`` pins.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "huggingface": (
        "accelerate==1.15.0",
        "datasets==5.2.0",
        "peft==0.21.2",
        "sentence-transformers==6.2.0",
        "transformers==5.23.0",
        "trl==1.16.0",
    ),
}

#: What each of our scripts prints after a step; rank 0 alone does.
_STEP_5 = r"^step 5 "


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One training program."""

    name: str
    #: Whose it is: a distribution and its release, or ``here`` for the short ones in ``scripts``.
    origin: str
    group: str
    #: What follows the launcher's flags; ``{work}`` is a directory that stays between two starts,
    #: ``{pause}`` the seconds that a step lasts longer than it would.
    command: tuple[str, ...]
    #: The first line of a worker that this matches is the moment to kill, resize or stop.
    moment: str = _STEP_5
    #: The step that a whole run ends with; 0: it counts no steps.
    steps: int = 0
    #: It goes on from a checkpoint after a start; others begin anew.
    resumes: bool = False
    #: It sets no seed: the draws of its ranks differ from each other and from run to run.
    unseeded: bool = False
    #: The largest relative difference of a loss after the world's size changed.
    tolerance: float = 1e-4
    #: Part of ``make test``.
    quick: bool = False
    #: Only with ``FULL=1``.
    slow: bool = False
    #: Why a CPU cannot run it; empty: it can.
    needs: str = ""

    @property
    def by_others(self) -> bool:
        """Whether it is run from the distribution of somebody else."""
        return self.origin != "here"


def _here(name: str, script: str, *arguments: str, **more: object) -> Program:
    promised = {"origin": "here", "group": "huggingface", "steps": 20, "resumes": True} | more
    command = (
        str(SCRIPTS / script),
        "--checkpoint={work}/checkpoint",
        "--pause={pause}",
        *arguments,
    )
    return Program(name=name, command=command, **promised)  # type: ignore[arg-type]


def _accelerate(name: str, moment: str, **more: object) -> Program:
    return Program(
        name=f"accelerate {name}",
        origin="accelerate 1.15.0",
        group="huggingface",
        command=("-m", f"accelerate.test_utils.scripts.{name}"),
        moment=moment,
        **more,  # type: ignore[arg-type]
    )


PROGRAMS = (
    _here("DDP, ImageNet's loop", "imagenet.py", quick=True),
    _here("DDP, loader workers by fork", "imagenet.py", "--loader=fork"),
    _here("DDP, loader workers by spawn", "imagenet.py", "--loader=spawn"),
    _here("DDP, loader workers by forkserver", "imagenet.py", "--loader=forkserver"),
    _here("FSDP2 and DCP", "fsdp2.py"),
    _here("FSDP2 and asynchronous DCP", "fsdp2.py", "--asynchronous"),
    _here("accelerate, accumulation", "accelerated.py"),
    _here("EMA, activation checkpointing, two groups", "averaged.py"),
    _here("dropout and shuffling without a seed", "unseeded.py", resumes=False, unseeded=True),
    _accelerate("test_script", r"Training integration test"),
    _accelerate("test_sync", r"Test Distributed"),
    _accelerate("test_distributed_data_loop", r"Test DataLoader with shuffle=False"),
    _accelerate("test_ops", r"testing gather$"),
    _accelerate("test_ddp_comm_hook", r"Test DDP comm hook"),
)
