# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scontrol of the nodes that ``nodes.json`` above it has; ``calls`` there has what it was called with."""

from __future__ import annotations

import json
import pathlib
import sys
import time

path = pathlib.Path(__file__).resolve().parents[1] / "nodes.json"
nodes = json.loads(path.read_text())
with path.with_name("calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\n")
if sys.argv[1:3] == ["show", "node"]:
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    for name, (state, reason) in nodes.items():
        print(f"NodeName={name} State={state}" + (f" Reason={reason} [slurm@{now}]" if reason else ""))
elif sys.argv[1] == "update":
    values = dict(word.split("=", 1) for word in sys.argv[2:])
    nodes[values["nodename"]] = ["IDLE+DRAIN", values["reason"]]
    path.write_text(json.dumps(nodes))
