# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scontrol with nodes that are drained and resumed, which ``slurm.json`` above it has, and what was done to them."""

from __future__ import annotations

import json
import pathlib
import sys

path = pathlib.Path(__file__).resolve().parents[1] / "slurm.json"
slurm = json.loads(path.read_text())
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if sys.argv[1] == "--version":
    print("slurm 22.05.8")
elif sys.argv[1:3] == ["show", "node"]:
    for name, node in slurm["nodes"].items():
        state = node["state"] + "+DRAIN" * node["drain"]
        why = f" Reason={node['reason']} [root@2026-11-21T20:00:00]" if node["reason"] else ""
        print(f"NodeName={name} CPUTot=4 NodeAddr={name} State={state} Partitions=main{why}")
elif sys.argv[1] == "update":
    slurm["did"].append(f"{words['nodename']} {words['state']} {words.get('reason', '')}".strip())
    node = slurm["nodes"][words["nodename"]]
    node.update(drain=words["state"] == "drain", reason=node.pop("then", words.get("reason", "")))
    path.write_text(json.dumps(slurm))
