# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""measure.yml on real GPUs, with the tools that the role gpu_test_tools built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import Role
from gpu_machine import COLLECTIONS, Machine


def test_a_machine_is_measured_and_reported(machine: Machine, role: Role, tmp_path: Path) -> None:
    inputs = {"measure_tests": ["gpu_info", "gpu_bandwidth", "nccl_tests"], "measure_path": str(role.bin)}
    inputs.update(ansible_connection="local", ansible_python_interpreter=sys.executable)
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            *("-i", "gpu-01,", "-e", json.dumps(inputs), "hpcai.gpu_cluster.measure"),
        ],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "HPCAI_REPORT_DIR": str(tmp_path)},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = {record["check"]: record for record in json.loads((tmp_path / "run.json").read_text())["checks"]}
    copies = [metric for metric in records["gpu_bandwidth"]["metrics"] if metric["name"] == "h2d" and metric["value"]]
    assert len(copies) == len(machine.gpus), records["gpu_bandwidth"]["reason"]
    assert records["nccl_tests"]["verdict"] != "error", records["nccl_tests"]["reason"]
    assert (tmp_path / "measure.html").exists()
