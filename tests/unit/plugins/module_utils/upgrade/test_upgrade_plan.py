# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.plan import plan

OLD, NEW = "24.11.5-4", "26.05.5-1"
GROUPS = {"database": ["ctl"], "controller": ["ctl"], "compute": ["c1", "c2"], "login": ["ctl"]}


def host(package: str, target: str = NEW, problem: str = "", **runs: str) -> dict[str, t.Any]:
    """What slurm_packages returns."""
    daemons = {name: {"there": True, "active": bool(runs.get(name)), "runs": runs.get(name, "")} for name in DAEMONS}
    return {
        "version": "" if problem else target,
        "problem": problem,
        "installed": {"slurmd": package, "libslurm42t64": "24.11.5-4"},
        "install": [] if problem else [f"slurmd={target}"],
        "moved": [
            {"name": "slurmd", "before": package, "after": target},
            {"name": "libhwloc15", "before": "2.12.0-4", "after": "2.15.0-2"},
            {"name": "libllhttp9.4", "before": "", "after": "9.4.3"},
        ],
        "daemons": daemons,
    }


DAEMONS = ("slurmdbd", "slurmctld", "slurmd")
CTL = host(OLD, slurmdbd="24.11.5", slurmctld="24.11.5")
NODE = host(OLD, slurmd="24.11.5")


def test_a_cluster_that_can_be_upgraded() -> None:
    found = plan(GROUPS, {"ctl": CTL, "c1": NODE, "c2": NODE})
    assert (found["findings"], found["silent"]) == ([], [])
    assert (found["version"], found["upstream"], found["todo"]) == (NEW, "26.05.5", ["ctl", "c1", "c2"])
    assert found["report"][0] == (
        "ctl (database, controller, login): installed 24.11.5-4; slurmdbd 24.11.5, slurmctld 24.11.5: to 26.05.5-1"
    )
    assert found["others"] == ["libhwloc15 2.12.0-4 -> 2.15.0-2", "libllhttp9.4 9.4.3"]


def test_a_cluster_that_is_done() -> None:
    done = host(NEW, slurmdbd="26.05.5", slurmctld="26.05.5", slurmd="26.05.5")
    found = plan(GROUPS, dict.fromkeys(("ctl", "c1", "c2"), done))
    assert (found["findings"], found["todo"]) == ([], [])
    assert found["report"][1] == "c1 (compute): installed 26.05.5-1; slurmd 26.05.5: nothing to do"


def test_what_runs_counts_besides_what_is_installed() -> None:
    """Packages were exchanged, and the run was killed before the daemons were."""
    stopped, old = host(NEW), host(NEW, slurmd="24.11.5")
    found = plan(GROUPS, {"ctl": stopped, "c1": old, "c2": host(NEW, slurmd="26.05.5")})
    assert found["todo"] == ["ctl", "c1"]
    assert found["report"][0].endswith("slurmdbd does not run, slurmctld does not run: has 26.05.5-1, is to run it")
    too_old = plan(GROUPS, {"ctl": stopped, "c1": host(NEW, slurmd="22.05.8"), "c2": old})
    assert too_old["findings"][0].startswith("c1: slurmd runs 22.05.8: 26.05 takes over from 25.11, 25.05, 24.11")


def test_too_far_and_back() -> None:
    old = host("22.05.8-4", slurmd="22.05.8")
    found = plan(GROUPS, {"ctl": CTL, "c1": old, "c2": old})
    assert len(found["findings"]) == 1
    assert found["findings"][0].startswith("c[1-2]: slurmd runs 22.05.8: 26.05 takes over")
    assert "go 22.05 -> 23.11 -> 25.05 -> 26.05" in found["findings"][0]
    node = host(OLD, OLD, slurmd="24.11.5")
    back = plan(GROUPS, {"ctl": host(NEW, OLD, slurmctld="26.05.5"), "c1": node, "c2": node})
    assert any("cannot go back" in text for text in back["findings"])


def test_who_does_not_answer() -> None:
    found = plan(GROUPS, {"ctl": CTL, "c1": NODE})
    assert (found["findings"], found["silent"], found["todo"]) == ([], ["c2"], ["ctl", "c1"])
    assert found["report"][2] == "c2 (compute): does not answer and is left as it is"
    found = plan(GROUPS, {"c1": NODE, "c2": NODE})
    assert found["findings"] == [
        "ctl (slurmdbd) does not answer, and the others cannot be upgraded without it",
        "ctl (slurmctld) does not answer, and the others cannot be upgraded without it",
    ]


def test_hosts_that_cannot_have_it_or_not_the_same() -> None:
    lacks = host(OLD, problem="no version fits")
    found = plan(GROUPS, {"ctl": CTL, "c1": lacks, "c2": lacks})
    assert found["findings"] == ["c[1-2]: no version fits"]
    found = plan(GROUPS, {"ctl": CTL, "c1": NODE, "c2": host(OLD, "26.05.3-1", slurmd="24.11.5")})
    assert found["findings"] == [
        "the hosts would get different versions (c1,ctl: 26.05.5-1; c2: 26.05.3-1): name one in full in slurm_version"
    ]
    assert (found["version"], found["todo"]) == ("", [])
