# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that Slurm creates: as many as wanted come, slow ones cost no quick ones, failed ones are replaced."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import elastic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.elastic import ElasticNodes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError

SUSPEND_TIME = 300.0


class PowerSaving:
    """A Slurm with power saving on a clock of its own; it answers its commands as 22.05 does."""

    def __init__(self, boots: dict[str, float], version: str = "22.05.8") -> None:
        self.boots, self.version = boots, version  # seconds until a node is up; infinite: it never comes
        self.now = 0.0
        self.states = dict.fromkeys(boots, "IDLE+CLOUD+POWERED_DOWN")
        self.since: dict[str, float] = {}
        self.jobs: dict[int, tuple[str, str]] = {}  # id -> (job name, node)
        self.limits: list[str] = []
        self.commands: list[list[str]] = []
        self.suspended: list[str] = []
        self.excluded = "(null)"

    def sleep(self, seconds: float) -> None:
        for dummy in range(max(1, round(seconds))):
            self.now += 1
            self._tick()

    def _tick(self) -> None:
        wanted = {node for dummy, node in self.jobs.values()}
        for node, state in self.states.items():
            spent = self.now - self.since.get(node, 0.0)
            if node in wanted and state == "IDLE+CLOUD+POWERED_DOWN":
                self._become(node, "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP")
            elif "POWERING_UP" in state and spent >= min(self.boots[node], 1800):
                self._become(node, "MIXED+CLOUD" if self.boots[node] < 1800 else "DOWN+CLOUD+POWERED_DOWN")
            elif state == "MIXED+CLOUD" and node not in wanted:
                self._become(node, "IDLE+CLOUD")
            elif state == "IDLE+CLOUD" and node in wanted:
                self._become(node, "MIXED+CLOUD")
            elif state == "IDLE+CLOUD" and spent >= SUSPEND_TIME:
                self.suspended.append(node)
                self._become(node, "IDLE+CLOUD+POWERED_DOWN")

    def _become(self, node: str, state: str) -> None:
        self.states[node] = state
        self.since[node] = self.now

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.commands.append(argv)
        if argv[0] == "sinfo":
            return 1, "", "unrecognized option '--json'"
        if argv[0] == "scontrol":
            return 0, self._scontrol(argv), ""
        words = {key: value for key, dummy, value in (word.partition("=") for word in argv)}
        return 0, getattr(self, f"_{argv[0]}")(argv, words), ""

    def _scontrol(self, argv: list[str]) -> str:
        if argv[1:] == ["--version"]:
            return f"slurm-wlm {self.version}\n"
        if argv[1:3] == ["show", "partition"]:
            names = ",".join(self.states)
            return f"PartitionName=ndv4 Default=YES Nodes={names} State=UP MaxTime=00:45:00 TotalCPUs=9\n"
        if argv[1:3] == ["show", "node"]:
            why = " Reason=ResumeTimeout reached [slurm@2026-01-05T10:00:00]"
            return "\n".join(
                f"NodeName={node} CPUTot=4 CPUAlloc=0 State={state} Partitions=ndv4{why * state.startswith('DOWN')}"
                for node, state in self.states.items()
            )
        if argv[1:3] == ["show", "config"]:
            return f"SuspendExcNodes         = {self.excluded}\nSuspendExcParts         = (null)\n"
        assert argv[1] == "update", argv
        if argv[2].startswith("SuspendExcNodes+="):  # 24.11.5 shows what was there and what came, without brackets
            there = [] if self.excluded == "(null)" else [self.excluded]
            self.excluded = ",".join([*there, *expand(argv[2].partition("=")[2])])
        if argv[2].startswith("nodename="):
            assert argv[3] == "state=power_down"
            for node in expand(argv[2][len("nodename=") :]):
                self._become(node, "IDLE+CLOUD+POWERED_DOWN")
        return ""

    def _squeue(self, argv: list[str], words: dict[str, str]) -> str:
        return "\n".join(SEPARATOR.join([str(number), "RUNNING", name]) for number, (name, dummy) in self.jobs.items())

    def _sbatch(self, argv: list[str], words: dict[str, str]) -> str:
        self.jobs[len(self.commands)] = (words["--job-name"], words["--nodelist"])
        self.limits.append(words["--time"])
        return f"{len(self.commands)}\n"

    def _scancel(self, argv: list[str], words: dict[str, str]) -> str:
        for number in argv[1:]:
            del self.jobs[int(number)]
        return ""

    def client(self) -> ElasticNodes:
        return ElasticNodes(self.run, lambda: self.now, self.sleep)


def bring_up(slurm: PowerSaving, count: int, wait: float = 4000) -> elastic.ElasticPlan:
    return slurm.client().bring_up("", count, 120, wait, 5)


def test_nodes_that_are_up_are_kept_while_slow_ones_boot() -> None:
    """With POWER_UP alone the quick node would idle for SuspendTime, and be gone when the slow one comes."""
    slurm = PowerSaving({"n1": 60, "n2": 1500, "n3": 60})
    todo = bring_up(slurm, 2)
    assert (sorted(todo.up), todo.waiting, sorted(todo.resume)) == (["n1", "n2"], {}, ["n1", "n2"])
    assert slurm.suspended == [] and slurm.states["n3"] == "IDLE+CLOUD+POWERED_DOWN"


def test_a_node_that_never_comes_gives_its_place_to_another() -> None:
    slurm = PowerSaving({"n1": 60, "n2": float("inf"), "n3": 60})
    todo = bring_up(slurm, 2)
    assert (sorted(todo.up), todo.waiting) == (["n1", "n3"], {})
    assert todo.unusable == {"n2": "DOWN+CLOUD+POWERED_DOWN: ResumeTimeout reached"}
    assert todo.short == 0
    assert "n2" not in {node for dummy, node in slurm.jobs.values()}


def test_fewer_than_wanted_is_said_and_not_waited_for() -> None:
    slurm = PowerSaving({"n1": 60, "n2": float("inf")})
    todo = bring_up(slurm, 2)
    assert (todo.up, todo.waiting, todo.short) == (["n1"], {}, 1)
    assert slurm.now < 2000


def test_waiting_is_continued_by_the_next_call_and_nothing_is_submitted_twice() -> None:
    slurm = PowerSaving({"n1": 60, "n2": 600})
    first = bring_up(slurm, 2, wait=100)
    assert (first.up, list(first.waiting)) == (["n1"], ["n2"])
    assert "1 of 2 nodes are up; waiting for n2 ALLOCATED+CLOUD" in elastic.progress(first)
    second = bring_up(slurm, 2)
    assert (sorted(second.up), second.resume) == (["n1", "n2"], [])
    assert len(slurm.limits) == 2


def test_nodes_that_are_up_come_before_those_that_would_be_created() -> None:
    slurm = PowerSaving({"n1": 60, "n2": 60})
    slurm.states["n2"] = "IDLE+CLOUD"
    assert bring_up(slurm, 1).resume == []
    assert slurm.states["n1"] == "IDLE+CLOUD+POWERED_DOWN"


def test_a_job_lasts_no_longer_than_the_partition_allows() -> None:
    slurm = PowerSaving({"n1": 1})
    bring_up(slurm, 1)
    assert slurm.limits == ["45"]


def test_what_is_released_has_no_job_left() -> None:
    slurm = PowerSaving({"n1": 1, "n2": 1})
    bring_up(slurm, 0)
    assert sorted(slurm.client().release(60)) == ["n1", "n2"]
    assert slurm.jobs == {}
    assert slurm.client().release(60) == []


def test_only_idle_nodes_that_slurm_made_are_powered_down() -> None:
    slurm = PowerSaving({"n1": 1, "n2": 1, "n3": 1})
    slurm.states.update(n1="IDLE+CLOUD", n2="ALLOCATED+CLOUD", n3="IDLE")
    assert slurm.client().suspend(["n1", "n2", "n3"], check_mode=True) == ["n1"]
    assert slurm.states["n1"] == "IDLE+CLOUD"
    assert slurm.client().suspend(["n1", "n2", "n3"], check_mode=False) == ["n1"]
    assert slurm.states["n1"] == "IDLE+CLOUD+POWERED_DOWN"


def test_nodes_are_kept_where_slurm_can_be_told() -> None:
    with pytest.raises(SlurmError, match=r"22\.05\.8 cannot be told .* n\[1-2\] in SuspendExcNodes"):
        PowerSaving({}).client().keep(["n1", "n2"], check_mode=False)
    with pytest.raises(SlurmError, match=r"name the nodes in SuspendExcNodes"):
        PowerSaving({}).client().keep([], check_mode=True)
    slurm = PowerSaving({}, "25.11.5")
    slurm.excluded = "n[1,5]:1"
    assert slurm.client().keep(["n1", "n2"], check_mode=False) == ["n2"]
    assert slurm.commands[-1] == ["scontrol", "update", "SuspendExcNodes+=n2"]
    assert slurm.excluded == "n[1,5]:1,n2"
    assert slurm.client().keep(["n1", "n2"], check_mode=False) == []
    empty = PowerSaving({}, "24.11.5")
    assert empty.client().keep(["h1", "n1"], check_mode=True) == ["h1", "n1"] and empty.excluded == "(null)"
    assert empty.client().keep(["h1", "n1"], check_mode=False) == ["h1", "n1"] and empty.excluded == "h1,n1"


@pytest.mark.parametrize("bad", [{"A": "x"}, {"account x": 1}, {"": 1}])
def test_what_is_no_option_of_sbatch_is_refused(bad: dict[str, t.Any]) -> None:
    with pytest.raises(SlurmError, match="no long option"):
        elastic.options(bad)
    assert elastic.options({"account": "a", "exclusive": None, "no_requeue": True}) == ["--account=a", "--no-requeue"]


def test_a_partition_that_is_not_there_is_named() -> None:
    with pytest.raises(SlurmError, match=re.escape("there is no partition gpu; Slurm has ndv4")):
        PowerSaving({"n1": 1}).client().look("gpu", 1)


def test_a_node_that_was_never_registered_is_on_its_way_only_where_it_is_elastic() -> None:
    node = {"name": "n1", "state": "UNKNOWN", "flags": [], "reason": "", "available": False}
    assert elastic.out_of_service(node) == "UNKNOWN: its slurmd never registered"
    assert elastic.out_of_service({**node, "flags": ["CLOUD", "POWERING_UP"]}) == ""
