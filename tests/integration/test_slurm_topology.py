# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real slurmctld starts with a topology.conf that was drawn from a fabric, and has every node where it belongs."""

from __future__ import annotations

import re
import socket
import typing as t
from pathlib import Path

import pytest
from fabrics import fat_tree, rails
from real_slurm import STARTED, Slurmctld, slurmctld

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import conf_lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.module import perform
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import expand

CONF = """ClusterName=train
SlurmctldHost={host}
StateSaveLocation={state}
SlurmctldPidFile={state}/pid
SelectType=select/cons_tres
SlurmctldDebug=debug
TopologyPlugin=topology/{plugin}
NodeName={nodes} NodeAddr=127.0.0.[1-{count}] CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES State=UP
"""


@pytest.fixture(scope="module")
def daemon() -> Slurmctld:
    return slurmctld()


def drawn(text: str, nodes: str) -> str:
    params = {"source": "infiniband", "nodes": [nodes], "hosts": {}, "names": {}, "joined": None}
    lines = conf_lines(perform(params, text, "")["switches"], "tree", [], "")
    return "".join(f"{line}\n" for line in lines)


def said_of(daemon: Slurmctld, directory: Path, topology: str, nodes: str) -> str:
    conf = CONF.format(
        host=socket.gethostname(), state=directory / "state", plugin="tree", nodes=nodes, count=len(expand(nodes))
    )
    return daemon.start(directory, {"slurm.conf": conf, "topology.conf": topology})


def complaints(said: str) -> list[str]:
    return re.findall(r"^.*(?:fatal|TOPOLOGY|lack access|Invalid hostnames|Multiple leaf).*$", said, re.MULTILINE)


@pytest.mark.parametrize(("fabric", "nodes"), [(fat_tree(), "c[1-8]"), (rails(), "dgx[01-04]")], ids=["tree", "rails"])
def test_slurmctld_takes_the_tree(daemon: Slurmctld, tmp_path: Path, fabric: t.Any, nodes: str) -> None:
    text = drawn(fabric.print(), nodes)
    said = said_of(daemon, tmp_path, text, nodes)
    assert STARTED.search(said), said
    assert complaints(said) == [], said
    for name in re.findall(r"SwitchName=(\S+)", text):
        assert f"name:{name} " in said, said


def test_no_node_is_left_out_whatever_the_fabric_shows(daemon: Slurmctld, tmp_path: Path) -> None:
    """slurmctld warns of a node on no switch, and of parts that nothing joins: the first must not happen."""
    text = drawn(fat_tree().print(), "c[1-10]")
    assert "SwitchName=unplaced Nodes=c[9-10]" in text
    said = said_of(daemon, tmp_path / "whole", text, "c[1-10]")
    assert STARTED.search(said), said
    assert "lack access" not in said
    bare = text.replace("SwitchName=unplaced Nodes=c[9-10]\n", "")
    assert "lack access to 2 nodes: c[9-10]" in said_of(daemon, tmp_path / "bare", bare, "c[1-10]")
