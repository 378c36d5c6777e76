# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of slurm.conf that only some releases know."""

from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.node_lines import health_settings, saves_power
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

PROGRAM = "/usr/local/sbin/hpcai-node-health"
POWER = {"suspendprogram": "/opt/azurehpc/slurm/suspend", "SuspendTime": 300}


@pytest.mark.parametrize("version", ["", "22.05.8", "24.11.5", "26.05.0"])
def test_every_release_gets_the_default(version: str) -> None:
    found = health_settings(PROGRAM, 300, ["ANY", "cycle"], ["DOWN", "DRAIN"], version)
    assert found == {
        "HealthCheckProgram": PROGRAM,
        "HealthCheckInterval": "300",
        "HealthCheckNodeState": "ANY,CYCLE",
    }


@pytest.mark.parametrize(
    ("state", "too_old", "enough"),
    [
        ("NONDRAINED_IDLE", "22.05.8", "23.02.0"),
        ("START_ONLY", "25.05.3", "25.11.0"),
        ("REBOOT_ONLY", "25.11.1", "26.05.5"),
    ],
)
def test_a_state_comes_with_its_release(state: str, too_old: str, enough: str) -> None:
    for version in (too_old, ""):
        with pytest.raises(SlurmError, match=rf"{state} needs Slurm"):
            health_settings(PROGRAM, 300, [state], [], version)
    assert health_settings(PROGRAM, 300, [state], [], enough)["HealthCheckNodeState"] == state


@pytest.mark.parametrize(
    ("program", "interval", "states", "says"),
    [
        ("check", 300, ["ANY"], "absolute path"),
        ("/a check", 300, ["ANY"], "without blanks"),
        (PROGRAM, 0, ["ANY"], "1 to 65535"),
        (PROGRAM, 65536, ["ANY"], "1 to 65535"),
        (PROGRAM, 300, ["ANY", "SLEEPY"], "SLEEPY"),
        (PROGRAM, 300, [], "are empty"),
        (PROGRAM, 300, ["START_ONLY", "CYCLE"], "stands alone"),
    ],
)
def test_what_slurm_would_ignore_is_refused(program: str, interval: int, states: list[str], says: str) -> None:
    with pytest.raises(SlurmError, match=says):
        health_settings(program, interval, states, [], "26.05.0")


@pytest.mark.parametrize(
    ("version", "extra", "written"),
    [
        ("22.05.8", POWER, False),
        ("", POWER, False),
        ("23.02.1", POWER, True),
        ("26.05.0", POWER, True),
        ("26.05.0", {}, False),
        ("26.05.0", {"SuspendProgram": ""}, False),
    ],
)
def test_a_drained_node_outlives_power_saving(version: str, extra: dict[str, object], written: bool) -> None:
    found = health_settings("", 300, ["ANY"], ["DOWN", "DRAIN"], version, extra)
    assert found == ({"SuspendExcStates": "DOWN,DRAIN"} if written else {})
    assert saves_power(extra) == bool(extra and any(extra.values()))


def test_a_state_of_power_saving_is_checked() -> None:
    with pytest.raises(SlurmError, match="TIRED"):
        health_settings("", 300, [], ["TIRED"], "26.05.0", POWER)
