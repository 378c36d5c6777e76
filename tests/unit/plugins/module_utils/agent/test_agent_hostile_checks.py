# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs, files of sysfs, kept values and answers of tools made of junk, the same ones in every run.

No check crashes, each says something, a fault among junk is still found, and junk alone never passes.
"""

from __future__ import annotations

import json
import random
import re
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import registry, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_nvlink, xid
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import MOUNTS, World, smi

FALLEN = "4,9,9000000,c;NVRM: Xid (PCI:0003:00:00): 79, pid=4321, GPU has fallen off the bus."
PIECES = [
    "NVRM: Xid (PCI:", "4,9,9,c;",
    "Xid", "SXid (PCI:0000:c1:00.0): 24007, Fatal", "0003:00:00", "): ", "79", "154,", "x" * 3000,
    "GPU recovery action changed from 0x0 (None) to 0x2 (", "[ 99999999999.9]", "2026-99-99T99:99:99", "\x00",
    "\x1b[31m", "GPU 0: x", "Link 0: CRC Errors: ", "Effective BER: 15e-255", "1e309", "-5", "99999999999999999999",
    "é\u2028", "\t", ")",
]  # fmt: skip
JUNK: list[t.Any] = [None, True, -1, 1e308, float("nan"), "", "x", "\ud800", [], [[]], [None], {}, {"a": [[1, 2]]}]
CHECKS = [
    name for name in list(registry.CHECKS)[: list(registry.CHECKS).index("latches")] if name != "gpu_nvlink_errors"
]


def line(dice: random.Random) -> str:
    return "".join(dice.choice(PIECES) for dummy in range(dice.randint(0, 6)))


def text(dice: random.Random) -> str:
    return "\n".join(line(dice) for dummy in range(dice.randint(0, 8)))


@pytest.mark.parametrize("seed", range(4))
def test_parsers_take_any_text(seed: int) -> None:
    dice = random.Random(seed)
    for dummy in range(500):
        told = text(dice)
        for event in xid.parse(told.split("\n"), dice.choice([None, 1795290000.0])):
            assert event.code is None or event.code >= 0
        for gpu in nvidia_smi_nvlink.parse(told):
            assert gpu.total("errors") is None or t.cast(int, gpu.total("errors")) >= 0
            assert gpu.effective_ber is None or gpu.effective_ber >= 0


def broken(folder: Path, seed: int) -> World:
    """Return a node of which some files are junk, and some of what was kept."""
    dice = random.Random(seed)
    world = World(folder)
    machines.ndv4_sysfs(folder / "sys")
    world.statvfs = lambda path: types.SimpleNamespace(
        f_blocks=dice.choice([0, 100]), f_bavail=dice.choice([0, 50]), f_files=dice.choice([0, 9]), f_favail=5
    )
    places = [
        "sys/devices/system/cpu/online", "sys/devices/system/cpu/present", "sys/devices/system/edac/mc/mc0/ue_count",
        "sys/class/infiniband/mlx5_ib0/ports/1/counters/link_downed", "sys/class/nvme/nvme0/model", "proc/meminfo",
        "proc/swaps", "proc/mounts", "proc/stat", "proc/77/status", "proc/77/cmdline", "proc/77/cgroup",
    ]  # fmt: skip
    for place in places:
        if dice.random() < 0.7:
            world.file(place, re.sub("[\ud800-\udfff]", "", text(dice)))
    world.settings["kernel_log"] = str(world.file("kern.log", f"{text(dice)}\n{FALLEN}\n{text(dice)}"))
    world.settings["scratch"] = dice.choice([None, {"mount": "/mnt"}, {"mount": "/", "count": "x"}, {"count": 3}])
    world.settings["mailbox"] = dice.choice(["", str(folder / "absent")])
    world.state["kept"] = {name: dice.choice(JUNK) for name in CHECKS if dice.random() < 0.5}
    world.answers = {
        name: dice.choice(["", line(dice), None, Outcome(1, line(dice), "", 0.1)]) for name in ("munge", "unmunge")
    }
    smi(world, answer=dice.choice(["", text(dice), f"<nvidia_smi_log>{text(dice)}"]))
    return world


@pytest.mark.parametrize("seed", range(60))
def test_no_check_crashes_and_each_says_something_sound(tmp_path: Path, seed: int) -> None:
    world = broken(tmp_path, seed)
    for name in CHECKS:
        for suite in ("periodic", "epilog"):
            for record in world.run(name, suite):
                assert state.sound(record), (name, record)
                json.dumps(record)
                assert not record["reason"].startswith(("KeyError", "IndexError", "AttributeError", "TypeError")), (
                    record
                )
    json.dumps(world.state["kept"])


@pytest.mark.parametrize("seed", range(60))
def test_a_fault_among_junk_is_found(tmp_path: Path, seed: int) -> None:
    world = broken(tmp_path, 1000 + seed)
    world.file("proc/stat", "btime 1795290000\n")
    verdicts = {one["context"].get("code"): one["verdict"] for one in world.run("gpu_xid")}
    assert verdicts[79] == "fail"


NEVER = {
    "cpus_online": "sys/devices/system/cpu/online",
    "swap": "proc/swaps",
    "filesystems": "proc/mounts",
    "memory_errors": "sys/devices/system/edac/mc/mc0/ue_count",
    "infiniband_flaps": "sys/class/infiniband/mlx5_ib0/ports/1/counters/link_downed",
}


@pytest.mark.parametrize(("check", "place"), NEVER.items())
@pytest.mark.parametrize(
    "junk", ["", "\0", "nan", "-1", "1e3", "0x7", "ff", "yes", "1 2", "9" * 40, "0--3", "+5", "\uff15"]
)
def test_junk_where_a_number_stands_never_passes(tmp_path: Path, check: str, place: str, junk: str) -> None:
    world = World(tmp_path)
    machines.ndv4_sysfs(tmp_path / "sys")
    world.file("sys/devices/system/cpu/present", "0-3\n")
    world.file("sys/devices/system/cpu/online", "0-3\n")
    world.file("proc/meminfo", "MemTotal: 5 kB\n")
    world.file("proc/mounts", MOUNTS)
    world.file(place, junk)
    found = world.one(check)
    # An empty mount table is junk, too; a path in none is on nothing that could be judged.
    assert found["verdict"] != "pass", found
