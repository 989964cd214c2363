"""``--logs-specs``: a plug-in of torchrun decides where output goes, under brain-run as well."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

PLUG_IN = """
import os
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

class Named(DefaultLogsSpecs):
    def reify(self, envs):
        print('plug-ins may print')
        dest = super().reify(envs)
        for rank in envs:
            dest.stdouts[rank] = os.path.join(self.root_log_dir, f'rank-{rank}.txt')
            envs[rank]['NAMED'] = f'by the plug-in, {rank}'
        return dest
"""


@pytest.fixture
def plugged(tmp_path: Path) -> Path:
    """A directory for ``PYTHONPATH`` with a plug-in called ``named``."""
    (tmp_path / "naming.py").write_text(PLUG_IN)
    info = tmp_path / "naming-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: naming\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchrun.logs_specs]\nnamed = naming:Named\n")
    return tmp_path


@pytest.mark.parametrize("module", ["launcher.cli", "torch.distributed.run"])
def test_a_plug_in_decides_where_output_goes(plugged: Path, module: str) -> None:
    (plugged / "train.py").write_text("import os; print('seen', os.environ['NAMED'])")
    subprocess.run(
        [
            sys.executable,
            "-m",
            module,
            "--nproc-per-node=2",
            "--logs-specs=named",
            f"--log-dir={plugged}/logs",
            "train.py",
        ],
        cwd=plugged,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(plugged),
            "PYTHONPATH": f"{plugged}:{Path.cwd()}",
        },
        check=True,
        timeout=100,
    )
    written = [(plugged / "logs" / f"rank-{rank}.txt").read_text() for rank in (0, 1)]
    assert written == ["seen by the plug-in, 0\n", "seen by the plug-in, 1\n"]
