# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab whose nodes claim to be ND96asr_v4: what every lab has, and breaking GPUs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from cluster_lab import ROOT, Lab

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-gpu")))
SETUP = ROOT / "lab/roles/lab_nodes/files/gpu_tools/emulation/setup.py"
Json = t.Dict[str, t.Any]


class GpuLab(Lab):
    """One lab, what is broken in it, and what certify found."""

    numbers = itertools.count()

    def damage(self, name: str, **faults: t.Any) -> None:
        """Break a node, or make it sound again."""
        command = [sys.executable, "-B", str(SETUP), "faults", str(STATE / "node"), name]
        subprocess.run(command, input=json.dumps(faults), text=True, check=True, capture_output=True)

    def certify(self, *options: str, **variables: t.Any) -> tuple[int, str, str]:
        """Run certify.yml to its end; returns status, output and the name of the run."""
        run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{next(self.numbers)}"
        self.environment["HPCAI_RUN"] = run
        return (*self.play("certify.yml", *options, **variables), run)

    def records(self, run: str | None = None) -> list[Json]:
        """The check records of a run; without a name of the last one that certified everything."""
        document = json.loads((STATE / "report/run.json").read_text())
        done = [stage["run"] for stage in document["stages"] if (stage["stage"], stage["state"]) == ("certify", "done")]
        return [record for record in document["checks"] if record["run"] == (run or done[-1])]

    def certificate(self) -> Json:
        """The certificate of the last run."""
        latest = max(STATE.glob("report/certification/*/certificate.json"))
        found: Json = json.loads(latest.read_text())
        return found


@pytest.fixture(scope="session")
def lab() -> GpuLab:
    return GpuLab(SCENARIO, STATE)


@pytest.fixture
def sound(lab: GpuLab) -> t.Iterator[GpuLab]:
    """The lab, every node sound again after the test."""
    yield lab
    for name in lab.compute:
        lab.damage(name)


def some(records: list[Json], node: str | None, check: str, **labels: t.Any) -> list[Json]:
    """The records of one check of one node, the last one first; labels are those of its metrics."""
    found = [record for record in records if (record["node"], record["check"]) == (node, check)]
    for label, value in labels.items():
        found = [record for record in found if any(metric.get(label) == value for metric in record["metrics"])]
    assert found, [(record["node"], record["check"]) for record in records]
    return sorted(found, key=lambda record: record["time"], reverse=True)


def one(records: list[Json], node: str | None, check: str, **labels: t.Any) -> Json:
    """The last record of a check: what was found bad is tried twice."""
    return some(records, node, check, **labels)[0]
