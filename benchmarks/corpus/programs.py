"""The programs of the corpus: the origin of each, its command, and the properties that its runs
must have.
"""

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
    "frameworks": (
        "hydra-core==1.3.8",
        "lightning==2.6.6",
        "pytorch-ignite==0.5.5",
        "tensorboard==2.21.0",
        "torch-geometric==2.8.1",
        "torchdata==0.11.0",
        "torchmetrics==1.9.0",
        "webdataset==1.0.2",
    ),
}

#: What each of our scripts prints after a step, rank 0 alone. By then step 5 is saved.
_STEP_7 = r"^step 7 "


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One training program."""

    name: str
    #: Whose it is: a distribution and its release, or ``here`` for the short ones in ``scripts``.
    origin: str
    group: str
    #: What follows the launcher's flags; ``{work}`` is a directory that stays between two starts,
    #: ``{pause}`` a file with the seconds that a step lasts longer, ``{made}`` models and data.
    command: tuple[str, ...]
    #: The first line of a worker that this matches is the moment to kill, resize or stop.
    moment: str = _STEP_7
    #: It goes on from a checkpoint after a start; others begin anew.
    resumes: bool = False
    #: It sets no seed: the draws of its ranks differ from each other and from run to run.
    unseeded: bool = False
    #: The largest relative difference of a loss after the world's size changed.
    tolerance: float = 1e-4
    #: The least time that a step lasts until another launcher, which imports as much, has joined.
    step_seconds: float = 2.0
    #: Part of ``make test``.
    quick: bool = False
    #: Only with ``FULL=1``.
    slow: bool = False
    #: Events that it ends too early for, and nothing can make it last longer.
    too_short_for: tuple[str, ...] = ()
    #: Why it cannot be compared on a CPU; empty: it can.
    needs: str = ""

    @property
    def by_others(self) -> bool:
        """Return True if the program is run from a distribution that somebody else published."""
        return self.origin != "here"


def _here(name: str, script: str, *arguments: str, **more: object) -> Program:
    promised = {"origin": "here", "group": "huggingface", "resumes": True}
    told = ("--checkpoint={work}/checkpoint", "--pause={pause}", *arguments)
    command = (str(SCRIPTS / script), *told)
    return Program(name=name, **{"command": command} | promised | more)  # type: ignore[arg-type]


def _accelerate(name: str, moment: str, **more: object) -> Program:
    return Program(
        name=f"accelerate {name}",
        origin="accelerate 1.15.0",
        group="huggingface",
        command=("-m", f"accelerate.test_utils.scripts.{name}"),
        moment=moment,
        **more,  # type: ignore[arg-type]
    )


def _framework(name: str, script: str, *arguments: str, **more: object) -> Program:
    return _here(name, script, *arguments, group="frameworks", **more)


def _trl(name: str, model: str, data: str, *arguments: str, **more: object) -> Program:
    return Program(
        name=f"trl {name}",
        origin="trl 1.16.0",
        group="huggingface",
        command=(
            *("-m", f"trl.scripts.{name}"),
            f"--model_name_or_path={{made}}/{model}",
            f"--dataset_name={{made}}/{data}",
            *("--output_dir={work}/saved", "--use_cpu", "--bf16=false", "--seed=7"),
            *("--max_steps=16", "--per_device_train_batch_size=2", "--logging_steps=1"),
            *("--gradient_checkpointing=false", "--report_to=none", "--disable_tqdm=true"),
            *arguments,
        ),
        moment=r"^\{'loss'",
        too_short_for=("resized",),
        **more,  # type: ignore[arg-type]
    )


_REWARDED = (
    "--reward_model_name_or_path={made}/judge",
    *("--num_generations=2", "--max_completion_length=8"),
)

PROGRAMS = (
    _here("DDP, ImageNet's loop", "imagenet.py", quick=True),
    _here("DDP, loader workers by fork", "imagenet.py", "--loader=fork", slow=True),
    _here("DDP, loader workers by spawn", "imagenet.py", "--loader=spawn", slow=True),
    _here("DDP, loader workers by forkserver", "imagenet.py", "--loader=forkserver", slow=True),
    _here("FSDP2 and DCP", "fsdp2.py", slow=True),
    _here("FSDP2 and asynchronous DCP", "fsdp2.py", "--asynchronous"),
    _here("accelerate, accumulation", "accelerated.py", quick=True),
    _here("EMA, activation checkpointing, two groups", "averaged.py"),
    _here("torch.compile", "compiled.py"),
    _here("dropout and shuffling without a seed", "unseeded.py", resumes=False, unseeded=True),
    _here("transformers' Trainer", "hf_trainer.py", step_seconds=4.0),
    _here("transformers' Trainer, PEFT", "hf_trainer.py", "--peft", slow=True, step_seconds=4.0),
    _here("sentence-transformers", "embeddings.py", step_seconds=4.0),
    _framework("Lightning, DDP", "lightning_module.py", slow=True),
    _framework("Lightning, DDP and AsyncCheckpointIO", "lightning_module.py", "--asynchronous"),
    _framework("Lightning, FSDP", "lightning_module.py", "--strategy=fsdp"),
    _framework("Lightning, FSDP2", "lightning_module.py", "--strategy=fsdp2"),
    _framework("ignite", "ignited.py"),
    _framework("torch_geometric", "graphs.py"),
    _framework("torchdata's StatefulDataLoader", "stateful.py"),
    _framework("webdataset", "streaming.py"),
    _here(
        "Hydra, TensorBoard, torchmetrics",
        "configured.py",
        group="frameworks",
        command=(str(SCRIPTS / "configured.py"), "checkpoint={work}/checkpoint", "pause={pause}"),
    ),
    _accelerate(
        "test_script",
        r"Training integration test",
        needs="its ranks race to remove one file: half of its runs fail, under either launcher",
    ),
    _accelerate("test_sync", r"Test Distributed", too_short_for=("killed", "resized", "stopped")),
    _accelerate(
        "test_distributed_data_loop",
        r"Test DataLoader with shuffle=False",
        needs="a card: it ends unless it sees two GPUs",
    ),
    _accelerate("test_ops", r"testing gather$", too_short_for=("resized",)),
    _accelerate(
        "test_ddp_comm_hook",
        r"Test DDP comm hook",
        needs="a card: it gives DDP a device of the model, which fails with ValueError on a CPU",
    ),
    _trl("sft", "model", "text", "--max_length=32"),
    _trl("dpo", "model", "preferences"),
    _trl("reward", "judge", "preferences"),
    _trl("kto", "model", "verdicts"),
    _trl("grpo", "model", "preferences", *_REWARDED),
    _trl("rloo", "model", "preferences", *_REWARDED),
    Program(
        name="torchtitan",
        origin="torchtitan 0.3.0",
        group="none",
        command=("-m", "torchtitan.train"),
        needs="a card: without an accelerator its device is cuda",
    ),
)
