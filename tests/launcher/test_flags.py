"""The command line: torchrun's own, whatever version, with dlrover-run's and ours beside it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from brain.errors import BadInput
from launcher.command import flags
from launcher.command.entrypoint import Entrypoint
from launcher.command.torchrun import ask_torch, description
from launcher.options import launch_config

TORCHRUN = description.torchrun_of(sys.executable, {})


def options(*arguments: str, **environment: str) -> dict[str, object]:
    return flags.parse(TORCHRUN, [*arguments, "train.py"], environment)[0]


def fake_torch(tmp_path: Path, version: str, answer: str, run: str = "") -> str:
    """An interpreter beside a torch of ``version`` that answers what torchrun takes."""
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    (site / f"torch-{version}.dist-info").mkdir(parents=True)
    if run:
        (site / "torch" / "distributed").mkdir(parents=True)
        (site / "torch" / "distributed" / "run.py").write_text(run)
    interpreter = tmp_path / "bin" / "python"
    interpreter.parent.mkdir()
    interpreter.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\n{answer}\n")
    interpreter.chmod(0o755)
    return str(interpreter)


ANSWER = json.dumps(
    {
        "torch": "9.1",
        "flags": [
            {
                "names": ["--quantum"],
                "dest": "quantum",
                "kind": "value",
                "type": "int",
                "default": 3,
                "choices": None,
                "environment": "PET_QUANTUM",
                "help": "100% new",
            }
        ],
    }
)


def test_the_shipped_description_is_that_of_the_installed_torch() -> None:
    shipped = json.loads((Path(description.__file__).parent / "flags.json").read_text())
    script = Path(ask_torch.__file__)
    ran = subprocess.run(
        [sys.executable, str(script), "flags"],
        env=dict(os.environ) | {"PET_ROLE": "not a default"},
        capture_output=True,
        check=True,
        timeout=100,
    )
    said = json.loads(ran.stdout)
    assert said["torch"] != shipped["torch"] or said == shipped


def test_another_torch_is_asked_once_and_remembered(tmp_path: Path) -> None:
    interpreter = fake_torch(tmp_path, "9.1.0+cpu", f"cat <<'E'\n{ANSWER}\nE")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, second = (description.torchrun_of(interpreter, cache) for _ in range(2))
    assert (first.version, first.flags[0].names, first.note) == ("9.1", ("--quantum",), "")
    assert (second, (tmp_path / "asked").read_text()) == (first, "asked\n")


def test_builds_of_one_version_with_other_flags_are_told_apart(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    answer = f"cat <<'E'\n{ANSWER}\nE"
    for name in ("nightly", "patched"):
        interpreter = fake_torch(tmp_path / name, "9.1.0", answer, run=f"# {name}")
        description.torchrun_of(interpreter, cache)
    assert [len((tmp_path / n / "asked").read_text().split()) for n in ("nightly", "patched")] == [
        1,
        1,
    ]


def test_the_same_sources_need_no_question_whatever_the_build_is_called(tmp_path: Path) -> None:
    interpreter = fake_torch(tmp_path, "2.13.9+cu999", "exit 3")
    installed = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    (site / "torch").symlink_to(installed / "torch")
    known = description.torchrun_of(interpreter, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (known, known.note) == (TORCHRUN, "")


@pytest.mark.parametrize("damaged", ['{"torch":', "[]", '{"torch": "9.1", "flags": []}', "\0"])
def test_a_damaged_memory_is_renewed(tmp_path: Path, damaged: str) -> None:
    interpreter = fake_torch(tmp_path, "9.1.0", f"cat <<'E'\n{ANSWER}\nE")
    memory = tmp_path / "elastic-brain" / "torchrun-9.1.0.json"
    memory.parent.mkdir()
    memory.write_text(damaged)
    assert description.torchrun_of(interpreter, {"XDG_CACHE_HOME": str(tmp_path)}).version == "9.1"
    assert json.loads(memory.read_text())["torch"] == "9.1"


def test_without_a_place_to_remember_the_answer_is_used_all_the_same(tmp_path: Path) -> None:
    interpreter = fake_torch(tmp_path, "9.1.0", f"cat <<'E'\n{ANSWER}\nE")
    (tmp_path / "cache").write_text("a file where a directory should be")
    known = description.torchrun_of(interpreter, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (known.version, known.note) == ("9.1", "")


def test_agents_that_start_at_once_leave_one_whole_memory(tmp_path: Path) -> None:
    interpreter = fake_torch(tmp_path, "9.1.0", f"sleep 0.1\ncat <<'E'\n{ANSWER}\nE")
    with ThreadPoolExecutor(8) as pool:
        cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        known = set(
            pool.map(lambda _: description.torchrun_of(interpreter, cache).version, range(8))
        )
    left = [path.name for path in (tmp_path / "cache" / "elastic-brain").iterdir()]
    assert (known, left) == ({"9.1"}, ["torchrun-9.1.0.json"])


def test_a_flag_of_another_torch_works(tmp_path: Path) -> None:
    interpreter = fake_torch(tmp_path, "9.1.0", f"cat <<'E'\n{ANSWER}\nE")
    known = description.torchrun_of(interpreter, {"XDG_CACHE_HOME": str(tmp_path)})
    assert flags.parse(known, ["--quantum=7", "a.py"], {})[0]["quantum"] == 7
    assert flags.parse(known, ["a.py"], {"PET_QUANTUM": "5"})[0]["quantum"] == 5


@pytest.mark.parametrize("answer", ["exit 3", "echo {"])
def test_a_torch_that_cannot_be_asked_is_taken_for_the_newest_known(
    tmp_path: Path, answer: str
) -> None:
    interpreter = fake_torch(tmp_path, "9.1.0", answer)
    known = description.torchrun_of(interpreter, {"XDG_CACHE_HOME": str(tmp_path)})
    assert known.flags == TORCHRUN.flags
    assert "torch 9.1.0 did not answer" in known.note


def test_without_torch_the_newest_known_flags_are_taken_and_said(tmp_path: Path) -> None:
    known = description.torchrun_of(str(tmp_path / "bin" / "python"), {})
    assert known.flags == TORCHRUN.flags
    assert "no torch was found for" in known.note


def test_environment_gives_defaults_and_flags_win() -> None:
    assert options(PET_ROLE="ps")["role"] == "ps"
    assert options("--role=chief", PET_ROLE="ps")["role"] == "chief"
    assert options(PET_STANDALONE="1")["standalone"] is True
    assert options(PET_STANDALONE="0")["standalone"] is False
    assert options(PET_MAX_RESTARTS="3")["max_restarts"] == 3


def test_a_switch_in_the_environment_must_be_a_number() -> None:
    with pytest.raises(BadInput, match="PET_STANDALONE=yes must be 0 or 1"):
        options(PET_STANDALONE="yes")


def test_what_follows_the_script_is_never_ours() -> None:
    said = ["--tee", "3", "train.py", "--check", "--role", "x", "-m", "--", "--help"]
    given, script, rest = flags.parse(TORCHRUN, said, {})
    assert (given["role"], script, rest) == ("default", "train.py", said[3:])


@pytest.mark.parametrize(
    ("short", "dest"),
    [("--t=3", "tee"), ("--te=3", "tee"), ("--nn=2", "nnodes"), ("--mon=1", "monitor_interval")],
)
def test_short_forms_mean_what_they_mean_to_torchrun(short: str, dest: str) -> None:
    assert options(short)[dest] != options()[dest]


def test_both_spellings_and_short_options_work() -> None:
    assert options("--nproc_per_node", "2")["nproc_per_node"] == "2"
    assert options("-t3", "-r", "1")["tee"] == "3"
    assert options("-m")["module"] is True


@pytest.mark.parametrize(
    "flag", [flag for flag in flags.DLROVER if flag.idle], ids=lambda flag: flag.names[0]
)
def test_flags_without_effect_say_why_once(flag: description.Flag) -> None:
    given = [flag.names[0]] if flag.switch else [flag.names[0], "1x"]
    (warning,) = flags.warnings(options(*given))
    assert warning == f"{flag.names[0]} {flag.idle}"


def test_flags_with_effect_are_silent() -> None:
    said = ["--node_unit=2", "--accelerator=h100", "--tee=3", "--network-check", "--auto_config"]
    assert flags.warnings(options(*said, "--numa-binding=node", "--logs-specs=mine")) == []


#: As ``dlrover/trainer/torch/elastic_run.py`` of dlrover 0.6.1 adds them to torchrun's.
DLROVER_061 = {
    "precheck": ["--precheck=2"],
    "node_unit": ["--node_unit=2", "--node-unit=2"],
    "auto_config": ["--auto_config", "--auto-config"],
    "auto_tunning": ["--auto_tunning", "--auto-tunning"],
    "exclude_straggler": ["--exclude-straggler", "--exclude_straggler"],
    "save_at_breakpoint": ["--save_at_breakpoint", "--save-at-breakpoint"],
    "accelerator": ["--accelerator=ascend-npu"],
    "training_port": ["--training_port=6", "--training-port=6"],
    "numa_affinity": ["--numa-affinity", "--numa_affinity"],
    "network_check": ["--network-check", "--network_check"],
    "comm_perf_test": ["--comm-perf-test", "--comm_perf_test"],
}


@pytest.mark.parametrize(
    ("dest", "spelled"), [(dest, each) for dest, all_ in DLROVER_061.items() for each in all_]
)
def test_dlrover_runs_flags_are_taken_in_every_spelling(dest: str, spelled: str) -> None:
    read, _, rest = flags.parse(TORCHRUN, [spelled, "train.py", spelled], {}, "dlrover-run")
    usual = flags.parse(TORCHRUN, ["train.py"], {}, "dlrover-run")[0]
    assert (rest, {key for key in read if read[key] != usual[key]}) == ([spelled], {dest})


def test_dlrover_run_refuses_an_accelerator_that_it_does_not_know() -> None:
    with pytest.raises(BadInput) as refused:
        flags.parse(TORCHRUN, ["--accelerator=tpu", "train.py"], {}, "dlrover-run")
    assert all(each in str(refused.value) for each in ("tpu", *flags.ACCELERATORS))


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        (["--monitor-interval=5"], "--monitor-interval"),
        (["--run-path", "--start-method=fork"], "--start-method"),
    ],
)
def test_flags_of_torchrun_without_effect_say_why(given: list[str], flag: str) -> None:
    (warning,) = flags.warnings(options(*given))
    assert warning.startswith(f"{flag} has no effect: ")


def test_a_flag_of_a_newer_torch_is_taken_and_said_to_be_without_effect() -> None:
    new = description.Flag(names=("--quantum",), dest="quantum", type="int", default="3")
    newer = replace(TORCHRUN, version="3.0", flags=(*TORCHRUN.flags, new))
    given, silent = (flags.parse(newer, [*f, "a.py"], {})[0] for f in (["--quantum=7"], []))
    told = "--quantum of torchrun 3.0 is not known here yet: it has no effect"
    assert (flags.strange(newer, given), flags.strange(newer, silent)) == ([told], [])


@pytest.mark.parametrize("missing", TORCHRUN.flags, ids=lambda flag: flag.dest)
def test_an_older_torch_without_a_flag_has_its_default(
    tmp_path: Path, missing: description.Flag
) -> None:
    older = replace(TORCHRUN, flags=tuple(each for each in TORCHRUN.flags if each != missing))
    known, everything = (flags.parse(each, ["a.py"], {})[0] for each in (older, TORCHRUN))
    fewer, all_of_them = (
        launch_config(
            Entrypoint(
                argv=("python", "a.py"),
                name="a.py",
                python=True,
                interpreter=sys.executable,
                options={} | options,
            ),
            {"HOME": str(tmp_path)},
            str(tmp_path),
        )
        for options in (known, everything)
    )
    # Standing alone, a job's id is new each time.
    same = replace(fewer, entrypoint=all_of_them.entrypoint, run_id="", job="")
    assert same == replace(all_of_them, run_id="", job="")


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(BadInput, match="--bogus"):
        options("--bogus=1")


def test_a_rendezvous_of_another_name_is_served_and_said() -> None:
    said = flags.warnings({"rdzv_backend": "etcd"})

    assert said == ["--rdzv-backend=etcd is served as c10d: an agent listens at the endpoint"]
