"""Lightning's saves. A stand-in of its shape is imported here; ``make corpus`` runs Lightning."""

from pathlib import Path

import pytest

from tests.collectors.probed import NETWORK, worker

#: As of Lightning 2.6: a buffer is filled, then written by other means than torch's.
CLOUD_IO = """
import io, os, time, torch
def _atomic_save(checkpoint, filepath):
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    while os.path.exists("hold"): time.sleep(0.01)
    with open(f"{filepath}.part", "wb") as file: file.write(buffer.getvalue())
    os.rename(f"{filepath}.part", filepath)
"""
PLUGIN = """
from concurrent.futures import ThreadPoolExecutor
from {fabric}.utilities.cloud_io import _atomic_save
class AsyncCheckpointIO:
    def __init__(self):
        self._executor, self._error = ThreadPoolExecutor(max_workers=1), None
    def save_checkpoint(self, *args, **kwargs):
        def save():
            try: _atomic_save(*args, **kwargs)
            except BaseException as error: self._error = error
        self._executor.submit(save)
    def teardown(self): self._executor.shutdown(wait=True)
"""
NAMES = [("lightning.fabric", "lightning.pytorch"), ("lightning_fabric", "pytorch_lightning")]


def _stand_in(place: Path, fabric: str, pytorch: str) -> None:
    for module, text in (
        (f"{fabric}.utilities.cloud_io", CLOUD_IO),
        (f"{pytorch}.plugins.io.async_plugin", PLUGIN.format(fabric=fabric)),
    ):
        path = place / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True)
        path.write_text(text)


@pytest.mark.parametrize(("fabric", "pytorch"), NAMES)
def test_a_save_by_lightning_is_told_with_its_step(
    tmp_path: Path, fabric: str, pytorch: str
) -> None:
    _stand_in(tmp_path, fabric, pytorch)
    script = NETWORK + (
        f"from {fabric}.utilities.cloud_io import _atomic_save\n"
        "for index, (x,) in enumerate(data()):\n"
        "    learn(x); optimizer.step()\n"
        "    if index == 9: _atomic_save(net.state_dict(), 'last.ckpt')\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert [(told["path"], told["step"]) for told in job.told("saved")] == [
            (str(tmp_path / "last.ckpt"), 10)
        ]


@pytest.mark.parametrize(("fabric", "pytorch"), NAMES)
def test_its_asynchronous_save_is_told_once_complete_with_the_step_it_began_at(
    tmp_path: Path, fabric: str, pytorch: str
) -> None:
    _stand_in(tmp_path, fabric, pytorch)
    script = NETWORK + (
        f"from {pytorch}.plugins.io.async_plugin import AsyncCheckpointIO\n"
        "plugin = AsyncCheckpointIO()\n"
        "for index, (x,) in enumerate(data()):\n"
        "    learn(x); optimizer.step()\n"
        "    if index == 9: plugin.save_checkpoint(net.state_dict(), 'last.ckpt')\n"
        "    if index == 29:\n"
        "        open('trained', 'w').close()\n"
        "        while os.path.exists('hold'): time.sleep(0.01)\n"
        "        plugin.teardown()\n"
    )
    (tmp_path / "hold").touch()
    with worker(tmp_path) as job:
        job.start(script)
        job.until_path(tmp_path / "trained", seconds=100)
        job.listen()
        assert not job.told("saved")
        (tmp_path / "hold").unlink()
        job.until(lambda: job.ended, "the script ends")
        job.listen()
        assert [told["step"] for told in job.told("saved")] == [10]
