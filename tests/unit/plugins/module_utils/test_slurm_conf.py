# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._slurm_conf import digest, parse, problems

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


def test_parse_reads_comments_quotes_and_continued_lines() -> None:
    conf = parse(GOOD)
    assert ("prolog", "/opt/a b.sh") in conf.settings
    assert ("slurmdtimeout", "120") in conf.settings
    assert conf.records[0] == {"nodename": "c[1-2]", "sockets": "1", "corespersocket": "2", "realmemory": "1000"}
    assert not conf.unread


def test_a_sound_file_has_no_problems() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ClusterName=lab", "", "ClusterName is missing"),
        ("SlurmctldHost=ctl\nSlurmctldHost=ctl2(10.0.0.2)", "", "SlurmctldHost is missing"),
        ("SlurmdTimeout=120", "SlurmdTimeout", "is not made of Name=value"),
        ("SlurmdTimeout=120", "SlurmdTimeout=1\nslurmdtimeout=2", "slurmdtimeout is set more than once"),
        ("select/cons_tres", "cons_tres", "it must look like select/<name>"),
        ("task/affinity", "affinity", "it must look like task/<name>"),
        ("Nodes=c[1-2]", "Nodes=c[1-3]", "partition batch names unknown nodes: c3"),
        ("PartitionName=DEFAULT", "NodeName=c2\nPartitionName=DEFAULT", "node c2 is defined twice"),
        ("Nodes=c[1-2]", "Nodes=c[1-", "'[' without ']'"),
        ("PartitionName=DEFAULT State=UP", "PartitionName=b2 Nodes=c1 Default=yes", "only one partition"),
        ("PartitionName=DEFAULT State=UP", "PartitionName=batch Nodes=c1", "partition batch is defined twice"),
        ('Prolog="/opt/a b.sh"', 'Prolog="/opt/a b.sh', "is not made of Name=value"),
    ],
)
def test_problems_are_named(old: str, new: str, said: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new))
    assert any(said in text for text in found), found


def test_no_node_at_all_is_a_problem() -> None:
    assert "no node is defined" in problems("ClusterName=x\nSlurmctldHost=y\n")


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
