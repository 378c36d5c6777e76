# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scontrol with nodes on two leaves, which ``slurm.json`` above it has."""

from __future__ import annotations

import json
import pathlib
import sys

path = pathlib.Path(__file__).resolve().parents[1] / "slurm.json"
slurm = json.loads(path.read_text())
nodes, words = slurm["nodes"], dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
names = sorted(nodes)


def expand(text):
    head, _, rest = text.partition("[")
    spans = [span.partition("-") for span in rest.rstrip("]").split(",")] if rest else []
    return [f"{head}{n}" for a, _, b in spans for n in range(int(a), int(b or a) + 1)] or text.split(",")


if sys.argv[1] == "--version":
    print("slurm 22.05.8")
elif sys.argv[1:3] == ["show", "node"]:
    for name in names:
        state, _, reason = nodes[name].partition(" ")
        why = f" Reason={reason} [ops@2026-11-21T20:00:00]" if reason else ""
        print(f"NodeName={name} CPUTot=4 NodeAddr={name} State={state} Partitions=main{why}")
elif sys.argv[1:3] == ["show", "partition"]:
    print(f"PartitionName=main Default=YES MaxTime=UNLIMITED State=UP Nodes={','.join(names)}")
elif sys.argv[1:3] == ["show", "topology"]:
    print("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=c[1-4]")
    print("SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=c[5-9]")
else:
    slurm["did"].append(" ".join(sys.argv[1:]))
    for name in expand(words["nodename"]):
        nodes[name] = f"IDLE+DRAIN {words['reason']}"
    path.write_text(json.dumps(slurm))
