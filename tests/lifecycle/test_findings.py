"""What was found of a failure stays with its world, and is told."""

from dataclasses import replace

from brain.cli.output import finding
from brain.types.diagnosis import Attachment, Diagnosis, FailureKind
from brain.types.explanation import Evidence
from brain.types.job import JobState
from brain.types.resources import Resources
from brain.types.world import Cause, WorldEvent
from tests.virtual import Laptop, scaling_by

FOUND = Diagnosis(
    kind=FailureKind.CODE,
    sentence="rank 1 exited with code 1: KeyError: 'loss'; it failed first",
    rank=1,
    replica=0,
    step=12,
    evidence=(Evidence(label="raised at", value="train.py:7"),),
    traceback="Traceback …",
    attachments=(Attachment(name="stacks", text="File …"),),
)


def lost(here: Laptop, why: Diagnosis, epoch: int = 1) -> None:
    """A world of that epoch is lost for it."""
    here.report(
        WorldEvent.LOST, epoch=epoch, cause=Cause.FAILURE, detail=why.sentence, diagnosis=why
    )


def test_a_loss_keeps_its_finding_and_tells_it_to_programs() -> None:
    here = Laptop(scaling_by(0.9), cpus=4).start()
    lost(here, FOUND)

    with here.transaction() as (tx, _):
        told = [event for event in tx.events.after(0) if event.kind == "world.lost"][-1]
    assert here.world is not None
    assert here.world.diagnosis == FOUND
    assert told.data == {
        "kind": "code",
        "rank": "1",
        "replica": "0",
        "step": "12",
        "raised at": "train.py:7",
    }


def test_only_the_newest_finding_keeps_its_texts() -> None:
    here = Laptop(scaling_by(0.9), cpus=4).start()
    lost(here, FOUND)
    lost(here, replace(FOUND, step=40), epoch=2)

    with here.transaction() as (tx, job):
        newest, before = (world.diagnosis for world in tx.worlds.of(job.id))
    assert newest == replace(FOUND, step=40)
    assert before == replace(FOUND, traceback="", attachments=())


def test_a_world_that_stands_still_is_told_without_a_change_of_state() -> None:
    here = Laptop(scaling_by(0.9), cpus=4).start()
    why = replace(FOUND, kind=FailureKind.HANG, sentence="no worker has made progress for 300 s")

    job = here.report(WorldEvent.HUNG, detail=why.sentence, diagnosis=why)
    again = here.report(WorldEvent.HUNG, detail=why.sentence, diagnosis=why)

    assert (job.state, job.reason) == (JobState.RUNNING, "no worker has made progress for 300 s")
    assert again.version == job.version


def test_a_person_reads_one_line_or_all_of_it() -> None:
    here = Laptop(scaling_by(0.9), cpus=4).start()
    lost(here, replace(FOUND, next_step="the workers restart in place"))
    assert here.world is not None

    assert finding([here.world]) == [
        f"Failed (world 1, code): {FOUND.sentence}",
        "  Then: the workers restart in place",
    ]
    assert "  | Traceback …" in finding([here.world], whole=True)
    assert finding([]) == []


def test_a_job_that_its_own_memory_ended_is_told_how_much_it_had() -> None:
    here = Laptop(scaling_by(0.9), resources=Resources(memory_bytes=400 << 20)).start()
    why = replace(FOUND, kind=FailureKind.MEMORY, sentence="it ran out of memory")
    job = here.report(
        WorldEvent.LOST, cause=Cause.FAILURE, detail=why.sentence, diagnosis=why, final=True
    )

    assert job.reason == (
        "it ran out of memory; each replica may use 400 MiB: submit the job again with more "
        "`memoryBytes`"
    )
