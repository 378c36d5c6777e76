# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import (
    busy_nodes,
    digest,
    dropped_nodes,
    lost_plugins,
    state_left_behind,
)

GOOD = """# comment
ClusterName=lab
SlurmctldHost=ctl
SlurmctldHost=ctl2(10.0.0.2)
SelectType=select/cons_tres SlurmdTimeout=120
TaskPlugin=task/cgroup,task/affinity
Prolog="/opt/a b.sh"
NodeName=c[1-2] Sockets=1 \\
  CoresPerSocket=2 RealMemory=1000
PartitionName=DEFAULT State=UP
PartitionName=batch Nodes=c[1-2] Default=YES # the only one
"""


@pytest.mark.parametrize(
    ("old", "new", "restart"),
    [
        ("# comment", "# other comment", False),
        ("SlurmdTimeout=120", "SlurmdTimeout=60", False),
        ("Default=YES", "Default=NO", False),
        ("select/cons_tres", "select/linear", True),
        ("SelectType=", "selecttype=", False),
        ("c[1-2] Sockets", "c[1-3] Sockets", True),
        ("RealMemory=1000", "RealMemory=2000", True),
        ("SlurmdTimeout=120", "SlurmdTimeout=120 AccountingStoragePort=6820", True),
        ("SlurmctldHost=ctl\n", "SlurmctldHost=ctl9\n", True),
        ("TaskPlugin=task/cgroup,task/affinity", "TaskPlugin=task/cgroup", True),
    ],
)
def test_digest_changes_when_a_restart_is_needed(old: str, new: str, restart: bool) -> None:
    assert old in GOOD
    assert (digest({"slurm.conf": GOOD}) != digest({"slurm.conf": GOOD.replace(old, new)})) is restart


def test_digest_takes_other_files_in_full() -> None:
    one = digest({"slurm.conf": GOOD, "cgroup.conf": "ConstrainCores=yes"})
    assert one != digest({"slurm.conf": GOOD, "cgroup.conf": "ConstrainCores=no"})
    assert one == digest({"slurm.conf": GOOD, "cgroup.conf": "# x\nConstrainCores=yes"})


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("slurm.conf", "SlurmctldHost=a\nSlurmctldHost=b", "SlurmctldHost=b\nSlurmctldHost=a"),
        (
            "topology.conf",
            "SwitchName=s1 Nodes=c1\nSwitchName=s2 Nodes=c2",
            "SwitchName=s1 Nodes=c2\nSwitchName=s2 Nodes=c1",
        ),
        (
            "gres.conf",
            "Name=gpu Type=a100 File=/dev/nvidia[0-3]\nName=gpu Type=h100 File=/dev/nvidia[4-7]",
            "Name=gpu Type=h100 File=/dev/nvidia[0-3]\nName=gpu Type=a100 File=/dev/nvidia[4-7]",
        ),
    ],
)
def test_digest_keeps_order_and_lines(name: str, one: str, other: str) -> None:
    assert digest({name: one}) != digest({name: other})
    assert digest({name: one}) == digest({name: "# x\n\n  " + one.replace(" ", "  ") + " # y\n"})


def test_digest_does_not_mind_where_different_settings_stand() -> None:
    assert digest({"slurm.conf": "SlurmUser=a\nSlurmdPort=1"}) == digest({"slurm.conf": "SlurmdPort=1\nSlurmUser=a"})


@pytest.mark.parametrize(
    ("before", "after", "states", "refused"),
    [
        ("", "/b", {"/a": 5}, False),
        ("/a", "/a/", {"/a": 5}, False),
        ("/a", "/b", {"/a": 5}, True),
        ("/a", "/b", {}, False),
        ("/a", "/b", {"/b": 5}, False),
        ("/a", "/b", {"/a": 5.25, "/b": 5}, False),
        ("/a", "/b", {"/a": 6, "/b": 5}, True),
    ],
)
def test_jobs_are_not_left_behind(before: str, after: str, states: dict[str, float], refused: bool) -> None:
    old, new = (f"StateSaveLocation={place}" for place in (before, after))
    said = state_left_behind(old, new, lambda place: states.get(place, 0))
    assert bool(said) is refused
    assert not refused or "rsync -a /a/ /b/" in said


OURS = "#\n# Ansible managed\n#\n# by role x\n"
INCLUDE = "include /etc/slurm/plugstack.conf.d/*.conf\n"


@pytest.mark.parametrize(
    "before, after, gone",
    [
        ("", OURS + INCLUDE, []),
        (INCLUDE, OURS + INCLUDE, []),  # as Debian ships it
        ("# of the site\nrequired /opt/x.so a=1\n" + INCLUDE, OURS + INCLUDE, ["required /opt/x.so a=1"]),
        ("required   /opt/x.so a=1 # why\n", OURS + "required /opt/x.so a=1\n" + INCLUDE, []),
        (OURS + "required /opt/x.so\n" + INCLUDE, OURS + INCLUDE, []),  # ours to remove
        ("#\n# Ansible managed\n#\nrequired /opt/x.so\n", OURS + INCLUDE, ["required /opt/x.so"]),  # by another role
        ("required /opt/x.so\n", "", []),  # not written
    ],
)
def test_plugins_of_others_are_not_lost(before: str, after: str, gone: list[str]) -> None:
    said = lost_plugins({"plugstack.conf": before}, {"plugstack.conf": after} if after else {})
    assert bool(said) is bool(gone)
    assert all(line in said for line in gone) and (not said or "slurm_plugstack" in said)


def test_nodes_that_vanish_are_known_by_their_expanded_names() -> None:
    before = "NodeName=DEFAULT CPUs=2\nNodeName=c[1-3]\nNodeName=gpu-01,gpu-02\nPartitionName=p Nodes=ALL\n"
    assert dropped_nodes(before, "NodeName=c1,c3\nNodeName=gpu-02\n") == ["c2", "gpu-01"]
    assert dropped_nodes(before, before + "NodeName=c9\n") == [] == dropped_nodes("", before)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((0, "6|anna|RUNNING|c1\n", ""), ""),
        (
            (0, "6|anna|RUNNING|c1\n7|anna|RUNNING|c[1-2]\n8|bob|COMPLETING|c3\n", ""),
            "Slurm would end 2 jobs there: 7 anna RUNNING c[1-2], 8 bob COMPLETING c3. ",
        ),
        ((1, "", "slurm_load_jobs error: Unable to contact slurm controller"), "cannot be read: slurm_load_jobs"),
    ],
)
def test_nodes_with_jobs_are_not_dropped(answer: tuple[int, str, str], words: str) -> None:
    text = busy_nodes(["c2", "c3"], *answer)
    assert words in text and bool(words) == bool(text)
    assert busy_nodes([], *answer) == ""
