"""The command line: documents from words, exit codes, and clear refusals."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from brain import errors
from brain.cli import COMMANDS, cli, exit_code
from brain.cli.documents import check_program, check_script, document_of, read_document
from brain.cli.jobs import planned
from brain.cli.operate import allocated
from brain.cli.output import rate
from brain.cli.plans import no_plan, plan_text, resize
from brain.types.allocation import Allocation
from brain.types.plan import PlanState
from brain.types.recommendation import Prediction
from brain.types.resources import PoolName, Resources
from brain.types.sharing import PoolRound
from brain.wire import job_document
from tests.builders import NOW, explanation, plan, recommendation

#: A service that no test here speaks to.
SOMEWHERE = {"BRAIN_URL": "http://127.0.0.1:9", "BRAIN_TOKEN": "x"}
NOTHING = {"nproc": 1, "policy": None, "checkpoint": None, "env": ()}


def brain(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "brain.cli", *words],
        env=os.environ | {"BRAIN_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_becomes_a_document_named_after_its_script():
    document = document_of(
        ("python", "train.py", "--lr", "1"), name=None, replicas="1:4", **NOTHING
    )
    assert document["name"] == "train"
    assert document["replicas"] == {"min": 1, "max": 4}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "my train.py"), "my-train"),
        (("torchrun", "--nproc-per-node", "2", "train.py"), "train"),
        (("accelerate", "launch", "train.py"), "train"),
        (("python", "-m", "vision.train", "--epochs", "3"), "vision.train"),
        (("sleep", "5"), "sleep"),
        (("bash", "-c", "sleep 5; echo done"), "bash"),
    ],
)
def test_a_name_that_nobody_gave_is_one_that_a_job_may_have(command: tuple[str, ...], name: str):
    document = document_of(command, name=None, replicas="1", **NOTHING)
    assert job_document(document).name == name


def test_gpus_of_a_command_are_those_of_each_replica():
    document = document_of(("python", "train.py"), name=None, replicas="1:4", gpus=2, **NOTHING)
    assert job_document(document).resources.gpus == 2


def test_memory_with_a_unit_is_told_how_bytes_are_written():
    document = document_of(("python", "train.py"), name=None, replicas="1", **NOTHING)
    with pytest.raises(errors.BadInput, match=r"'4Gi' is not a number of bytes; .* 4294967296"):
        job_document(document | {"resources": {"memoryBytes": "4Gi"}})


@pytest.mark.parametrize("verb", ["submit", "estimate"])
def test_two_jobs_on_one_command_line_are_named(verb: str):
    words = [verb, "-f", "job.yaml", "--", "python", "train.py"]
    told = CliRunner().invoke(cli, words, env=SOMEWHERE)
    assert "job.yaml and the command python train.py describe two jobs" in str(told.exception)


@pytest.mark.parametrize("verb", ["submit", "estimate"])
def test_an_option_of_a_command_beside_a_document_is_refused(verb: str):
    told = CliRunner().invoke(cli, [verb, "-f", "job.yaml", "--gpus", "1"], env=SOMEWHERE)
    assert "--gpus only describes a command after --; write its value into job.yaml instead" in str(
        told.exception
    )


@pytest.mark.parametrize("verb", ["submit", "estimate"])
def test_an_option_that_is_meant_for_the_script_is_told_its_place(verb: str):
    told = CliRunner().invoke(cli, [verb, "train.py", "--epochs", "3"], env=SOMEWHERE)
    assert f"write the script's command after --: cli {verb} -- python train.py --epochs" in (
        told.output
    )


@pytest.mark.parametrize("words", [("job",), ("explain",), ("plans",), ("report",)])
def test_an_empty_name_of_a_job_is_told_as_such(words: tuple[str, ...]):
    told = CliRunner().invoke(cli, [*words, ""], env=SOMEWHERE)
    assert "the name of the job is empty; `brain jobs` lists the jobs" in str(told.exception)


def test_an_empty_name_is_refused_and_not_replaced():
    document = document_of(("python", "train.py"), name="", replicas="1", **NOTHING)
    with pytest.raises(errors.BadInput, match="name ''"):
        job_document(document)


@pytest.mark.parametrize("replicas", ["four", "1:x", ":", "-1"])
def test_replicas_that_are_no_range_are_refused_by_name(replicas: str):
    with pytest.raises(errors.BadInput, match="--replicas"):
        document_of(("python", "train.py"), name=None, replicas=replicas, **NOTHING)


def test_an_empty_checkpoint_is_refused_and_not_left_out():
    given = NOTHING | {"checkpoint": ""}
    document = document_of(("python", "train.py"), name="a", replicas="1", **given)
    with pytest.raises(errors.BadInput, match=r"checkpoint\.path ''"):
        job_document(document)


def test_a_command_that_is_quoted_as_one_word_is_told_its_words():
    with pytest.raises(errors.BadInput, match=r"no program 'python train\.py'; .*: python train"):
        check_program({"command": ["python train.py"]})


def test_an_environment_without_a_value_is_refused():
    with pytest.raises(errors.BadInput, match="NAME=VALUE"):
        document_of(("x",), name="x", replicas="1", **NOTHING | {"env": ("TOKEN",)})


def test_a_script_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path):
    document = {"command": ["python", "nowhere.py"], "directory": str(tmp_path)}
    with pytest.raises(errors.BadInput, match=r"nowhere\.py does not exist"):
        check_script(document)


def test_the_doctor_ends_with_1_where_something_is_broken(tmp_path: Path):
    done = brain("doctor", home=tmp_path / "none")
    assert (done.returncode, "no Brain runs on this machine" in done.stdout) == (1, True)


def test_a_document_that_is_no_mapping_is_refused(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text("- just\n- a list\n")
    with pytest.raises(errors.BadInput, match="name:"):
        read_document(str(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "is nested too deep"),
        ("deadline: 2026-13-45", "is not valid YAML: month must be in 1..12"),
        ("steps: 0x_", "is not valid YAML"),
        ("name: a\n\x07steps: 3", "is not valid YAML"),
        ("name: one\nsteps: 3\nname: two", "has the field name twice, the second time in line 3"),
        (
            "replicas: {min: 1, max: 2, min: 2}",
            "has the field min twice, the second time in line 1",
        ),
    ],
)
def test_a_document_that_no_reader_can_read_is_refused(tmp_path: Path, text: str, says: str):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(errors.BadInput, match=rf"job\.yaml {says}"):
        read_document(str(path))


def test_a_document_in_the_place_of_a_command_is_no_job():
    done = CliRunner().invoke(cli, ["submit", "job.yaml"], env=SOMEWHERE)
    assert isinstance(done.exception, errors.BadInput)
    assert "submit it with -f job.yaml" in str(done.exception)


@pytest.mark.parametrize("words", [["--off"], ["--why", "the network is worked on"]])
def test_a_freeze_of_nothing_is_refused_and_no_list(words: list[str]):
    done = CliRunner().invoke(cli, ["freeze", *words], env=SOMEWHERE)
    assert (done.exit_code, "--project NAME or --all" in done.output) == (2, True)


def test_a_word_that_is_no_text_is_named(tmp_path: Path):
    (tmp_path / "admin.token").write_text("x")
    (tmp_path / "service.json").write_text('{"url": "http://127.0.0.1:9"}')
    said = brain("jobs", "--filter", "\udcff", home=tmp_path)
    assert (said.returncode, said.stderr) == (
        2,
        "brain: '\\udcff' is not UTF-8 text; write it in UTF-8\n",
    )


def test_a_plan_that_was_answered_asks_for_no_answer():
    waiting = recommendation(
        1,
        explanation=replace(
            explanation(), next_step="The plan is applied once the new world makes steps."
        ),
    )
    text = plan_text("digits", plan(state=PlanState.APPLYING), "examples/s", waiting, NOW)
    assert text.splitlines()[-1] == "Next: The plan is applied once the new world makes steps."


def test_an_active_plan_of_amounts_says_which_amounts_change():
    one = Allocation(replicas=1, resources=Resources(cpu_millis=1000))
    more = Allocation(replicas=1, resources=Resources(cpu_millis=1500))
    assert planned(plan(3, current=one, target=more)) == "Proposed g3: CPU 1 → 1.5 each"
    assert planned(plan(3, replicas=2)) == "Proposed g3 → 2"


def test_a_kind_of_which_a_round_divided_nothing_is_not_told():
    last = PoolRound(
        pool=PoolName("local"), decided_at=NOW, value=0, bound=0, prices={"cpu": 0.0, "A100": 1.0}
    )
    divided = replace(last, capacity={"cpu": 0.0, "A100": 4.0}, used={"A100": 3.0})
    assert allocated(last) == ""
    assert allocated(divided) == "3 of 4 cores of A100 allocated, price 1.00 each"


def test_an_empty_policy_of_a_pool_is_told_how_one_begins(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_text("")
    with pytest.raises(errors.BadInput, match="start the document with `projects:`"):
        read_document(str(path), begins="projects")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["audit", "--limit", "-1"], "-1 is not in the range x>=1"),
        (["logs", "digits", "--replica", "-3"], "-3 is not in the range x>=0"),
        (["wait", "digits", "--timeout", "-1"], "-1.0 is not in the range x>=0"),
    ],
)
def test_numbers_below_what_there_is_are_refused_by_their_option(words: list[str], says: str):
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, says in done.output, words[-2] in done.output) == (2, True, True)


def test_a_size_below_zero_is_asked_for_as_what_it_is():
    read = resize.make_context("resize", ["digits", "-1", "--why", "to see"]).params

    assert (read["job"], read["replicas"], read["why"]) == ("digits", -1, "to see")


def test_a_list_without_a_plan_says_what_is_waited_for():
    assert "`brain explain digits`" in no_plan("digits", "")
    assert no_plan(None, "state:Proposed").startswith("No plan matches 'state:Proposed'")


def test_migrating_is_explained_by_brain_and_not_by_the_service():
    done = CliRunner().invoke(cli, ["migrate", "--help"])

    assert done.exit_code == 0
    assert "brain migrate --home" in done.output


def test_a_document_that_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.BadInput, match=r"job\.yaml is not UTF-8 text; .* YAML"):
        read_document(str(path))


def test_every_command_of_the_table_can_be_loaded_and_has_help():
    for name in COMMANDS:
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.help or name in ("run", "migrate")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadInput("x"), 2),
        (errors.UnknownJob("x"), 3),
        (errors.NotAllowed("x"), 4),
        (errors.StalePlan("x"), 5),
        (errors.Unavailable("x"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: errors.BrainError, code: int):
    assert exit_code(error) == code


def test_without_a_service_the_remedy_is_named(tmp_path: Path):
    answer = brain("jobs", home=tmp_path)
    assert answer.returncode == 1
    assert "brain up" in answer.stderr


def test_a_misspelt_command_is_told_the_nearest_one():
    told = CliRunner().invoke(cli, ["sumbit"])
    assert (told.exit_code, "Did you mean 'submit'?" in told.output) == (2, True)


def test_a_freeze_of_two_things_is_not_told_that_it_named_none():
    told = CliRunner().invoke(cli, ["freeze", "digits", "--all"], env=SOMEWHERE)
    assert (told.exit_code, "a freeze has one scope" in told.output) == (2, True)


def test_an_unknown_command_is_a_usage_error(tmp_path: Path):
    assert brain("frobnicate", home=tmp_path).returncode == 2


def test_config_names_the_source_of_each_setting(tmp_path: Path):
    (tmp_path / "brain.toml").write_text("port = 9000\n")
    printed = brain("config", home=tmp_path).stdout
    assert printed.startswith("# The settings that `brain up` would use if started from this shell")
    assert str(tmp_path) in printed.splitlines()[0]
    assert f"port = 9000  # {tmp_path / 'brain.toml'}" in printed


def test_config_refuses_an_unknown_setting_with_the_nearest_name(tmp_path: Path):
    (tmp_path / "brain.toml").write_text("tick_second = 1\n")
    answer = brain("config", home=tmp_path)
    assert answer.returncode == 2
    assert "tick_seconds" in answer.stderr


def test_a_character_that_the_terminal_lacks_is_named():
    examples = Path(__file__).parents[2] / "examples"
    words = [str(examples / "workload.csv"), "--cluster", str(examples / "cluster.yaml")]
    answer = subprocess.run(
        [sys.executable, "-m", "brain.cli", "simulate", *words, "--policy=fifo", "--report=-"],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lacking = r"brain: cannot print '\u03c1', which the encoding latin-1 lacks; set LC_ALL=C.UTF-8"
    assert (answer.returncode, answer.stderr.strip()) == (1, lacking)


@pytest.mark.parametrize("content", [b"port = ", b"# caf\xe9\n", b"port = 1\nport = 2\n"])
def test_a_file_of_settings_that_cannot_be_read_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "brain.toml").write_bytes(content)
    answer = brain("config", home=tmp_path)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"brain: {tmp_path / 'brain.toml'} cannot be used: ")


def test_a_script_that_cannot_be_looked_at_is_refused_like_a_missing_one(tmp_path: Path):
    command = ["python", f"{'a' * 300}.py"]
    with pytest.raises(errors.BadInput, match="correct its path"):
        check_script({"command": command, "directory": str(tmp_path)})


def test_a_rate_carries_its_interval():
    assert rate(Prediction(examples_per_second=2555, low=2445, high=2665)) == "2 555 ± 110"


def test_an_uneven_interval_is_written_as_its_two_ends():
    assert rate(Prediction(examples_per_second=120, low=30, high=160)) == "120 (30.0–160)"


def test_brain_alone_is_a_question_and_no_mistake(tmp_path: Path):
    alone = brain(home=tmp_path)
    assert (alone.returncode, alone.stdout[:13], alone.stderr) == (0, "Usage: brain ", "")


def test_a_report_that_has_no_directory_is_refused_before_the_run(tmp_path: Path):
    examples = Path(__file__).parents[2] / "examples"
    report = tmp_path / "none" / "page.html"
    words = [str(examples / "workload.csv"), "--cluster", str(examples / "cluster.yaml")]
    done = CliRunner().invoke(
        cli, ["simulate", *words, "--policy", "fifo", "--report", str(report)]
    )
    assert isinstance(done.exception, errors.BadInput)
    assert (
        f"the directory {report.parent} does not exist" in str(done.exception),
        done.output,
    ) == (
        True,
        "",
    )


@pytest.mark.parametrize(
    ("program", "meant"), [("pyton", "python"), ("pythn", "python"), ("torchrn", "torchrun")]
)
def test_a_misspelt_program_is_refused_before_anything_is_queued(program: str, meant: str) -> None:
    done = CliRunner().invoke(cli, ["submit", "--", program, "train.py"], env=SOMEWHERE)

    assert isinstance(done.exception, errors.BadInput)
    says = f"this machine has no program {program}; did you mean {meant}?"
    assert says in str(done.exception)


@pytest.mark.parametrize("program", ["python3.99", "mine", "/opt/pyton", "brain-runner"])
def test_another_program_that_is_not_here_may_be_where_the_job_runs(program: str) -> None:
    check_program({"command": [program, "train.py"]})


def test_a_record_of_the_service_that_is_a_list_is_told_as_unreadable(tmp_path: Path):
    (tmp_path / "service.json").write_text("[]")
    somewhere = SOMEWHERE | {"BRAIN_URL": None, "BRAIN_HOME": str(tmp_path)}
    told = CliRunner().invoke(cli, ["jobs"], env=somewhere)
    assert "service.json is missing or unreadable" in str(told.exception)
