# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The enroot that CycleCloud's Slurm project installs: is it there, and does it keep images on scratch?"""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.modules import enroot_info
from ansible_collections.hpcai.gpu_cluster.plugins.modules.enroot_info import EnrootHost

# The lines that the project 4.0.9 writes, for a scratch directory of its choice.
CONF = """ENROOT_SCRATCH_PATH {base}
ENROOT_RUNTIME_PATH {base}/enroot-run/user-$(id -u)
ENROOT_CACHE_PATH {base}/enroot-cache/group-$(id -g)
ENROOT_DATA_PATH {base}/enroot-data/user-$(id -u)
ENROOT_TEMP_PATH {base}/enroot-temp
ENROOT_MOUNT_HOME y
"""


def test_directories_of_all_users_are_read() -> None:
    assert enroot_info.paths(CONF.format(base="/nvme/enroot")) == {
        "ENROOT_CACHE_PATH": "/nvme/enroot/enroot-cache",
        "ENROOT_DATA_PATH": "/nvme/enroot/enroot-data",
        "ENROOT_TEMP_PATH": "/nvme/enroot/enroot-temp",
    }
    assert enroot_info.paths("ENROOT_DATA_PATH=/a\nENROOT_DATA_PATH=/b\n# ENROOT_TEMP_PATH /c\n") == {
        "ENROOT_DATA_PATH": "/a"
    }


def test_directories_that_are_there_are_fine(tmp_path: Path) -> None:
    for name in ("cache", "data", "temp"):
        (tmp_path / f"enroot/enroot-{name}").mkdir(parents=True)
    conf = tmp_path / "enroot.conf"
    conf.write_text(CONF.format(base=tmp_path / "enroot"))
    host = enroot_info.observe(conf, "4.0.1")
    assert enroot_info.judge(host, str(tmp_path), enroot_info.device(str(tmp_path))) == []
    (tmp_path / "enroot/enroot-data").rmdir()
    host = enroot_info.observe(conf, "4.0.1")
    (finding,) = enroot_info.judge(host, "", None)
    assert finding.startswith("ENROOT_DATA_PATH") and finding.endswith("which is not there")


ALL = dict.fromkeys(enroot_info.LARGE, "/tmp/enroot")


@pytest.mark.parametrize(
    ("host", "scratch", "expected"),
    [
        (EnrootHost("", {}, {}), "", ["enroot is not installed"]),
        (
            EnrootHost("4.0.1", {}, {}),
            "",
            ["sets no ENROOT_CACHE_PATH", "sets no ENROOT_DATA_PATH", "sets no ENROOT_TEMP"],
        ),
        (EnrootHost("4.0.1", ALL, dict.fromkeys(ALL, 1)), "", []),
        (EnrootHost("4.0.1", ALL, dict.fromkeys(ALL, 7)), "/scratch", []),
        (EnrootHost("4.0.1", ALL, dict.fromkeys(ALL, 1)), "/scratch", ["is not on the disks of /scratch"] * 3),
        (
            EnrootHost("4.0.1", ALL, {**dict.fromkeys(ALL, 7), "ENROOT_DATA_PATH": 1}),
            "/scratch",
            ["ENROOT_DATA_PATH is /"],
        ),
    ],
)
def test_what_keeps_containers_from_running(host: EnrootHost, scratch: str, expected: list[str]) -> None:
    findings = enroot_info.judge(host, scratch, 7)
    assert len(findings) == len(expected)
    assert all(text in finding for finding, text in zip(findings, expected))


def test_scratch_that_is_not_there_is_said_once() -> None:
    host = EnrootHost("4.0.1", ALL, dict.fromkeys(ALL, 1))
    assert enroot_info.judge(host, "/scratch", None) == ["scratch is /scratch, which is not there"]
