# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scontrol with nodes and reservations, which ``slurm.json`` above it has."""

from __future__ import annotations

import json
import pathlib
import sys

path = pathlib.Path(__file__).resolve().parents[1] / "slurm.json"
slurm = json.loads(path.read_text())
nodes, kept = slurm["nodes"], slurm["kept"]
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)


def expand(text):
    head, _, rest = text.partition("[")
    spans = [span.partition("-") for span in rest.rstrip("]").split(",")] if rest else []
    return [f"{head}{n}" for a, _, b in spans for n in range(int(a), int(b or a) + 1)] or text.split(",")


if sys.argv[1] == "--version":
    print("slurm 22.05.8")
elif sys.argv[1:3] == ["show", "node"]:
    inside = {name for reservation in kept.values() for name in expand(reservation["nodes"])}
    for name, reason in nodes.items():
        state = "IDLE" + "+MAINTENANCE" * (name in inside) + "+DRAIN" * bool(reason)
        why = f" Reason={reason} [root@2026-11-21T20:00:00]" if reason else ""
        print(f"NodeName={name} CPUTot=4 NodeAddr={name} State={state} Partitions=main{why}")
elif sys.argv[1] == "show":
    for name, reservation in kept.items():
        print(
            f"ReservationName={name} StartTime=2026-11-21T21:32:35 Nodes={reservation['nodes']}"
            f" Flags={reservation['flags']},SPEC_NODES Users={reservation['users']} State=ACTIVE"
        )
else:
    slurm["did"].append(" ".join(sys.argv[1:4]))
    if sys.argv[1] == "create":
        kept[words["reservationname"]] = words
    elif sys.argv[1] == "delete":
        del kept[words["reservationname"]]
    else:
        nodes.update({name: words.get("reason", "") for name in expand(words["nodename"])})
    path.write_text(json.dumps(slurm))
