# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands over nodes that it creates, one program under five names; ``slurm.json`` above it has their state.

A node boots for so many looks at it (``boots``); one with a negative number never comes.
"""

from __future__ import annotations

import json
import pathlib
import sys

path = pathlib.Path(__file__).resolve().parents[1] / "slurm.json"
slurm = json.loads(path.read_text())
nodes, jobs = slurm["nodes"], slurm["jobs"]
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
given = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
slurm["did"].append(" ".join([name, *words]))
if name == "sinfo":
    sys.exit("sinfo: unrecognized option '--json'")
elif words == ["--version"]:
    print("slurm-wlm 22.05.8")
elif words[:2] == ["show", "partition"]:
    print("PartitionName=ndv4 Default=YES Nodes=" + ",".join(nodes), "State=UP MaxTime=1-00:00:00 TotalCPUs=9")
elif words[:2] == ["show", "node"]:
    for node, known in nodes.items():
        wanted = node in [job["node"] for job in jobs.values()]
        if wanted and known["state"] == "IDLE+CLOUD+POWERED_DOWN":
            known["state"], known["looks"] = "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", 0
        elif "POWERING_UP" in known["state"]:
            known["looks"] += 1
            if known["looks"] >= abs(known["boots"]):
                known["state"] = "MIXED+CLOUD" if known["boots"] > 0 else "DOWN+CLOUD+POWERED_DOWN"
        elif not wanted and known["state"] == "MIXED+CLOUD":
            known["state"] = "IDLE+CLOUD"
        why = " Reason=ResumeTimeout reached [slurm@2026-01-05T10:00:00]" if known["state"].startswith("DOWN") else ""
        where = f"NodeName={node} CPUTot=4 NodeAddr=10.80.1.{known['address']}"
        print(f"{where} State={known['state']} Partitions=ndv4{why}")
elif name == "squeue":
    for number, job in jobs.items():
        print("\x1f".join([number, "RUNNING", job["name"]]))
elif name == "sbatch":
    number = str(len(slurm["did"]))
    jobs[number] = {"name": given["job-name"], "node": given["nodelist"]}
    print(number)
elif name == "scancel":
    for number in words:
        del jobs[number]
elif words[0] == "update":
    assert given == {"nodename": "n[1-2]", "state": "power_down"}, given
    for node in ("n1", "n2"):
        nodes[node]["state"] = "IDLE+CLOUD+POWERED_DOWN"
path.write_text(json.dumps(slurm))
