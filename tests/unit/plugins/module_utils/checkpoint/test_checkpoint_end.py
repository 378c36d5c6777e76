# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However an upload ends, its copies end too: nobody would look for them on a node without Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience
from stand_in import answer

SEND = """
import sys
from pathlib import Path
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files, program, site, site as plan
directory, azcopy = map(Path, sys.argv[1:])
settings = site.Site(str(azcopy), "https://a.blob.core.windows.net/c", 20, str(directory))
work = program.CheckpointUpload(settings, directory, "https://a.blob.core.windows.net/c/x")
with program.tool(work) as tool:
    program._send(work, tool, files.scan(directory, 0, 2e9), plan.TransferPlan(100, 1, 2, 1, 200))
"""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_copies_do_not_outlive_their_upload(tmp_path: Path, sign: signal.Signals) -> None:
    checkpoint, pids, azcopy = tmp_path / "checkpoint", tmp_path / "pids", tmp_path / "azcopy"
    checkpoint.mkdir()
    for name in "abc":
        (checkpoint / name).touch()
        os.utime(checkpoint / name, (1e9, 1e9))
    answer(azcopy, pid=pids, hangs="yes")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    running = subprocess.Popen([sys.executable, "-c", SEND, str(checkpoint), str(azcopy)], env=environment)
    _eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    running.send_signal(sign)
    assert running.wait(patience(15)) != 0
    started = pids.read_text().split()
    _eventually(lambda: not any(_runs(pid) for pid in started))
    assert len(started) == 2  # the third was not begun


def _runs(pid: str) -> bool:
    """One that ended and that nobody has asked for yet does not run."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _eventually(holds: t.Callable[[], bool], seconds: float = 15) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
