"""Steps and checkpoints of TensorFlow's coordinator, by a stand-in for its two modules.

``tests/end_to_end/test_parameter_servers.py`` has TensorFlow itself, where there is one.
"""

from pathlib import Path

from tests.collectors.probed import worker

#: Of TensorFlow only what is hooked, and that a manager writes in a way of its own.
MODULES = {
    "distribute/coordinator/cluster_coordinator.py": """
class ClusterCoordinator:
    def schedule(self, fn):
        fn()
    def join(self):
        pass
""",
    "checkpoint/checkpoint.py": """
import os, pathlib
class Checkpoint:
    def _write(self, prefix):
        os.makedirs(os.path.dirname(prefix), exist_ok=True)
        pathlib.Path(prefix + ".index").write_text("1")
    def write(self, file_prefix):
        self._write(file_prefix)
    save = write
    def read(self, save_path):
        pass
    restore = read
""",
    "checkpoint/checkpoint_management.py": """
class CheckpointManager:
    def __init__(self, checkpoint, directory):
        self._checkpoint, self.directory = checkpoint, directory
    def save(self):
        self._checkpoint._write(self.directory + "/ckpt-1")
""",
}
_LOOP = """
import time
from tensorflow.python.checkpoint.checkpoint import Checkpoint
from tensorflow.python.checkpoint.checkpoint_management import CheckpointManager
from tensorflow.python.distribute.coordinator.cluster_coordinator import ClusterCoordinator
coordinator, checkpoint = ClusterCoordinator(), Checkpoint()
checkpoint.write("kept/ckpt-0")
checkpoint.restore("kept/ckpt-0")
for turn in range(12):
    for _ in range(20):
        coordinator.schedule(lambda: time.sleep(0.01))
    coordinator.join()
    if turn == 6:
        CheckpointManager(checkpoint, "kept").save()
        time.sleep(1)
"""


def test_a_coordinator_counts_the_steps_of_all_workers_and_its_checkpoints_are_seen(
    tmp_path: Path,
):
    for name, text in MODULES.items():
        module = tmp_path / "tensorflow" / "python" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    with worker(tmp_path) as job:
        job.run(_LOOP, cold=True, RANK="0", WORLD_SIZE="5")
        assert {sample.processes for sample in job.training} == {1}, "it speaks for all of them"
        assert sum(sample.steps for sample in job.windows) == 240
        for sample in job.training:
            assert 0.01 <= sample.step_seconds < 0.05, "the pause after a save is no step"
        kept = str(tmp_path / "kept")
        assert [event["path"] for event in job.told("saved")] == [kept, kept]
        assert [event["path"] for event in job.told("loaded")] == [kept]
