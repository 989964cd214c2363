"""The probe in ordinary scripts: steps, batches, waits, saves and loads."""

from pathlib import Path

import pytest

from tests.collectors.probed import NETWORK, worker


def test_every_step_is_counted_with_its_place(tmp_path: Path) -> None:
    script = NETWORK + "for (x,) in data():\n    learn(x); optimizer.step()\n"
    with worker(tmp_path) as job:
        job.run(script, cold=True)
        assert sum(window.steps for window in job.windows) == 50 == job.windows[-1].step
        place = job.windows[0].place
        assert (place.job, place.replica, place.rank, place.local_rank) == ("0190", 3, 1, 1)
        assert (place.epoch, place.generation, job.windows[0].processes) == (2, 5, 2)


def test_identity_of_samples_strictly_rises(tmp_path: Path) -> None:
    script = NETWORK + "for (x,) in data():\n    learn(x); optimizer.step(); time.sleep(0.05)\n"
    with worker(tmp_path) as job:
        job.run(script)
        assert [window.sequence for window in job.windows] == list(range(len(job.windows)))
        times = [window.measured_at for window in job.windows]
        assert times == sorted(set(times))
        seconds = (times[-1] - times[0]).total_seconds()  # a busy machine takes longer
        assert 3 <= len(times) <= 4 + seconds, "one a second, and two for warm-up and the end"


def test_batch_size_and_waiting_for_data_are_seen(tmp_path: Path) -> None:
    script = """
    import time
    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 200
        def __getitem__(self, index): time.sleep(0.0025); return torch.randn(4)
    for x in DataLoader(Slow(), batch_size=8):
        learn(x); optimizer.step(); time.sleep(0.02)
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        [window, *_] = job.training
        assert window.local_batch == 8
        assert 0.02 < window.data_wait_seconds < window.step_seconds_mean
        assert window.examples_per_second == pytest.approx(8 / window.step_seconds_mean, rel=0.01)


def test_micro_batches_of_a_step_are_accumulation(tmp_path: Path) -> None:
    script = """
    for index, (x,) in enumerate(data(examples=800)):
        learn(x)
        if index % 4 == 3: optimizer.step()
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        assert {window.accumulation for window in job.training} == {4}
        assert {window.local_batch for window in job.training} == {8}
        assert job.windows[-1].step == 25


@pytest.mark.parametrize("batch", ["{'a': x, 'b': 1}", "[(x, 3), 'name']", "{'deep': {'x': [x]}}"])
def test_batches_of_any_shape_are_measured(tmp_path: Path, batch: str) -> None:
    script = f"""
    def collate(rows):
        x = torch.stack([row[0] for row in rows])
        return {batch}
    for _ in data(collate_fn=collate):
        learn(torch.randn(8, 4)); optimizer.step()
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        assert {window.local_batch for window in job.windows} == {8}


def test_without_a_loader_the_batch_is_unknown(tmp_path: Path) -> None:
    script = "for _ in range(20):\n    learn(torch.randn(8, 4)); optimizer.step()\n"
    with worker(tmp_path) as job:
        job.run(NETWORK + script)
        assert {window.local_batch for window in job.windows} == {None}
        assert {window.examples_per_second for window in job.windows} == {None}
        assert job.windows[-1].step == 20


def test_the_first_five_steps_are_warm_up(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.run(NETWORK + "for (x,) in data():\n    learn(x); optimizer.step()\n")
        assert sum(window.steps for window in job.windows if window.phase == "warmup") == 5


def _phases(directory: Path, pause: str) -> dict[str, int]:
    """The steps of each phase of a script that makes 40 steps, with a pause after each."""
    script = f"""
    evaluated = data(examples=8)
    for index, (x,) in enumerate(data(examples=320)):
        learn(x); optimizer.step()
        {pause}
    """
    found: dict[str, int] = {}
    with worker(directory) as job:
        job.run(NETWORK + _plain(script))
        for window in job.windows:
            found[window.phase] = found.get(window.phase, 0) + window.steps
    return found


@pytest.mark.parametrize(
    "pause",
    [
        "torch.save(net.state_dict(), 'ck.pt')",
        "index % 5 and torch.save(net.state_dict(), 'ck.pt')",
        "with torch.no_grad(): list(evaluated)",
    ],
)
def test_a_pause_after_most_steps_is_part_of_the_step(tmp_path: Path, pause: str) -> None:
    found = _phases(tmp_path, pause)
    assert (found["warmup"], sum(found.values())) == (5, 40)
    # Few steps are seen at first.
    assert found["training"] >= 34


def test_a_save_after_every_second_step_is_no_part_of_a_step(tmp_path: Path) -> None:
    pause = "index % 2 and torch.save(net.state_dict(), 'ck.pt')"
    found = _phases(tmp_path, pause)
    assert found == {"warmup": 5, "training": 18, "checkpoint": 17}


def test_slow_steps_make_one_sample_each(tmp_path: Path) -> None:
    script = "for (x,) in data(examples=24):\n    learn(x); optimizer.step(); time.sleep(1.1)\n"
    with worker(tmp_path) as job:
        job.run(NETWORK + script)
        assert [window.steps for window in job.windows] == [1, 1, 1]


def test_the_agent_hears_of_start_and_first_step(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.run(NETWORK + "for (x,) in data():\n    learn(x); optimizer.step()\n")
        assert [event["event"] for event in job.events] == ["started", "stepping"]
        assert {(event["rank"], event["epoch"]) for event in job.events} == {(1, 2)}


def test_samples_are_of_the_world_that_a_process_went_over_into(tmp_path: Path) -> None:
    script = """
    for index, (x,) in enumerate(data(examples=160)):
        if index == 12:
            sys.modules["_brain_probe"]._probe.moved(0, 3, {"epoch": 4, "replicas": 3})
        learn(x); optimizer.step()
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        worlds = [(w.place.epoch, w.place.rank, w.processes, w.replicas) for w in job.windows]
        assert list(dict.fromkeys(worlds)) == [(2, 1, 2, 2), (4, 0, 3, 3)]
        assert sum(w.steps for w in job.windows if w.place.epoch == 2) == 12
        assert [event["epoch"] for event in job.told("stepping")] == [2, 4]


def test_the_control_file_shows_steps_and_saves(tmp_path: Path) -> None:
    script = """
    for index, (x,) in enumerate(data()):
        learn(x); optimizer.step()
        if index == 29: torch.save(net.state_dict(), "ck.pt")
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        _, _, _, steps, last, saved, parked, first = job.control
        assert (steps, saved, parked) == (50, 30, 0)
        assert 0 < first < last


@pytest.mark.parametrize(
    ("written", "replaced"),
    [
        ("torch.save(net, 'ck.pt')", False),
        ("torch.save(net, __import__('pathlib').Path('ck.pt'))", False),
        ("torch.save(obj=net, f='ck.pt')", False),
        ("f = open('ck.pt', 'wb'); torch.save(net, f); f.close()", False),
        ("torch.save(net, 'ck.tmp'); os.replace('ck.tmp', 'ck.pt')", True),
        ("os.mkdir('t'); torch.save(net, 't/ck.pt'); os.rename('t', 'u')", True),
    ],
)
def test_a_save_is_told_at_its_final_name(tmp_path: Path, written: str, replaced: bool) -> None:
    script = f"""
    for index, (x,) in enumerate(data(examples=160)):
        learn(x); optimizer.step()
        if index == 9: {written}
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        [event], [sample] = job.told("saved"), job.saves
        assert (event["step"], event["replaced"]) == (10, replaced)
        final = Path(event["path"])
        assert final.name == "ck.pt"
        assert event["bytes"] == sample.size_bytes == final.stat().st_size
        assert (sample.path, sample.step) == (event["path"], 10)
        assert any(window.phase == "checkpoint" for window in job.windows)


def test_a_last_save_is_told_at_the_end(tmp_path: Path) -> None:
    script = "for (x,) in data():\n    learn(x); optimizer.step()\ntorch.save(net, 'ck.pt')\n"
    with worker(tmp_path) as job:
        job.run(NETWORK + script)
        assert [(event["step"], event["bytes"] > 0) for event in job.told("saved")] == [(50, True)]


def test_buffers_are_no_checkpoints(tmp_path: Path) -> None:
    script = """
    import io
    for (x,) in data():
        learn(x); optimizer.step(); buffer = io.BytesIO(); torch.save(net.state_dict(), buffer)
        buffer.seek(0); torch.load(buffer)
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        assert not job.saves
        assert not job.told("saved") + job.told("loaded")


def test_a_loaded_checkpoint_is_told_once(tmp_path: Path) -> None:
    script = """
    torch.save(net.state_dict(), "ck.pt")
    torch.load("ck.pt"); torch.load(open("ck.pt", "rb") if sys.argv[1:] else "ck.pt")
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        [event] = job.told("loaded")
        path = tmp_path / "ck.pt"
        assert (event["path"], event["inode"]) == (str(path), path.stat().st_ino)


def test_a_distributed_checkpoint_is_one_save(tmp_path: Path) -> None:
    script = """
    import warnings; warnings.simplefilter("ignore")
    import torch.distributed.checkpoint as dcp
    for index, (x,) in enumerate(data(examples=80)):
        learn(x); optimizer.step()
        if index == 5: dcp.save({"net": net.state_dict()}, checkpoint_id="ck-6")
    dcp.load({"net": net.state_dict()}, checkpoint_id="ck-6")
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script), cold=True)
        [saved], [loaded] = job.told("saved"), job.told("loaded")
        assert saved["path"] == loaded["path"] == str(tmp_path / "ck-6")
        assert saved["bytes"] > 100


def test_an_asynchronous_checkpoint_is_one_save(tmp_path: Path) -> None:
    script = """
    import warnings; warnings.simplefilter("ignore")
    import torch.distributed as dist, torch.distributed.checkpoint as dcp
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0,
                            world_size=1)
    for index, (x,) in enumerate(data(examples=80)):
        learn(x); optimizer.step()
        if index == 5: done = dcp.async_save({"net": net.state_dict()}, checkpoint_id="ck-6")
    done.result()
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        [event] = job.told("saved")
        assert (event["path"], event["seconds"]) == (str(tmp_path / "ck-6"), 0.0)


def test_safetensors_are_checkpoints(tmp_path: Path) -> None:
    script = """
    from safetensors.torch import load_file, save_file
    for index, (x,) in enumerate(data(examples=80)):
        learn(x); optimizer.step()
        if index == 5: save_file(net.state_dict(), "ck.safetensors")
    load_file("ck.safetensors")
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script), cold=True)
        [saved], [loaded] = job.told("saved"), job.told("loaded")
        assert saved["path"] == loaded["path"] == str(tmp_path / "ck.safetensors")


def test_a_declared_checkpoint_is_seen_however_it_is_written(tmp_path: Path) -> None:
    script = """
    for index, (x,) in enumerate(data(examples=480)):
        learn(x); optimizer.step(); time.sleep(0.04)
        if index == 20:
            open("weights.tmp", "w").write("by other means")
            os.replace("weights.tmp", "weights.npz")
    """
    with worker(tmp_path, checkpoint="weights.npz") as job:
        job.run(NETWORK + _plain(script), RANK="0")
        [event] = job.told("saved")
        assert event["path"] == str(tmp_path / "weights.npz")
        assert event["step"] <= 21, "never a step that the file cannot hold"


def test_a_declared_checkpoint_that_torch_writes_is_told_once(tmp_path: Path) -> None:
    script = """
    for index, (x,) in enumerate(data(examples=480)):
        learn(x); optimizer.step(); time.sleep(0.04)
        if index == 20: torch.save(net, "ck.tmp"); os.replace("ck.tmp", "ck.pt")
    """
    with worker(tmp_path, checkpoint="ck.pt") as job:
        job.run(NETWORK + _plain(script), RANK="0")
        assert [event["step"] for event in job.told("saved")] == [21]


def test_a_script_may_say_itself_that_it_saved(tmp_path: Path) -> None:
    script = """
    import _brain_probe
    for index, (x,) in enumerate(data(examples=80)):
        learn(x); optimizer.step()
        if index == 5: open("own", "w").write("x"); _brain_probe.saved("own")
    """
    with worker(tmp_path) as job:
        job.run(NETWORK + _plain(script))
        assert [Path(event["path"]).name for event in job.told("saved")] == ["own"]


def _plain(script: str) -> str:
    return "\n" + "\n".join(line[4:] for line in script.splitlines())
