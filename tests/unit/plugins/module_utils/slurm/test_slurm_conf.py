# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import (
    foreign_topology,
    parse,
    problems,
    problems_beside,
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


GRES = "Name=gpu Type=a100 File=/dev/nvidia[0-3]\nNodeName=c[1-2] AutoDetect=off"
TOPOLOGY = "SwitchName=s1 Nodes=c1\nSwitchName=s2 Nodes=c2\nSwitchName=top Switches=s[1-2]"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cgroup.conf", "# x\nConstrainCores=yes\n", ""),
        ("cgroup.conf", "ConstrainCores", "is not made of Name=value"),
        ("gres.conf", GRES, ""),
        ("gres.conf", "File=/dev/nvidia0", "has no Name"),
        ("gres.conf", "Name=gpu File=/dev/nvidia[0-", "'[' without ']'"),
        ("gres.conf", "NodeName=c[1-3] Name=gpu", "nodename names what is not defined: c3"),
        ("topology.conf", TOPOLOGY, ""),
        ("topology.conf", "Nodes=c1", "has no SwitchName"),
        ("topology.conf", "BlockName=b1 Nodes=c1\nBlockSizes=1", ""),
        ("topology.conf", "BlockName=b1 Nodes=c9", "nodes names what is not defined: c9"),
        ("topology.conf", "SwitchName=s Nodes=c9", "nodes names what is not defined: c9"),
        ("topology.conf", "SwitchName=s Switches=t", "switches names what is not defined: t"),
    ],
)
def test_problems_of_the_files_beside(name: str, text: str, said: str) -> None:
    found = problems_beside({"slurm.conf": GOOD, name: text})
    assert bool(found) is bool(said), found
    assert all(said in one and one.startswith(name) for one in found), found


FOREIGN = "# rack plan of the site\nSwitchName=r1 Nodes=c[1-2]\n"
OURS = "#\n# Ansible managed\n#\nSwitchName=leaf1 Nodes=c[1-2]\n"


@pytest.mark.parametrize(
    ("before", "after", "yaml", "said"),
    [
        ("", OURS, False, ""),
        (OURS.replace("leaf1", "leaf2"), OURS, False, ""),
        (OURS, "", True, ""),
        (FOREIGN, "", False, ""),
        (FOREIGN, FOREIGN.replace("# rack plan of the site\n", "#\n# Ansible managed\n#\n"), False, ""),
        (FOREIGN, OURS, False, "written by somebody else"),
        ("SwitchName=r1 Nodes=c[1-2]\n", OURS, False, "written by somebody else"),
        ("", OURS, True, "topology.yaml"),
    ],
)
def test_a_topology_of_somebody_elses_is_not_replaced(before: str, after: str, yaml: bool, said: str) -> None:
    files = [{"topology.conf": text} if text else {} for text in (before, after)]
    found = foreign_topology(files[0], files[1], yaml)
    assert bool(found) is bool(said), found
    assert all(said in text for text in found)
