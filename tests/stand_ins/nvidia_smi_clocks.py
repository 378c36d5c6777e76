# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An nvidia-smi whose GPUs keep clocks that were set; the file FAKE_SMI has their state and what goes wrong.

It is called hundreds of times, and to import json and pathlib would be half of what a call costs.
"""

from __future__ import annotations

# ruff: noqa: PTH123
import marshal
import os
import sys
import time


def keep() -> None:
    with open(os.environ["FAKE_SMI"], "wb") as file:
        marshal.dump(state, file)


with open(os.environ["FAKE_SMI"], "rb") as file:
    state = marshal.load(file)
words = sys.argv[1:]
state["calls"].append(words)
keep()
if state["hangs"]:
    time.sleep(600)
for code, text in state["broken"] if len(state["calls"]) > state["works_for"] else []:
    print(text)
    sys.exit(code)
if words[0].startswith("--query-gpu="):
    names = words[0].split("=", 1)[1].split(",")
    wrong = [name for name in names if name in state["unknown_fields"]]
    if wrong:
        print(f'Field "{wrong[0]}" is not a valid field to query.')
        sys.exit(2)
    for gpu in state["gpus"]:
        moving = {}
        for clock in ("graphics", "memory"):
            lock, top = gpu["lock"].get(clock), gpu["max"][clock]
            now = min(lock, top, gpu["clip"].get(clock, top)) if lock and gpu["follows"] else gpu["idle"][clock]
            moving["clocks.current." + clock] = now - gpu["less"].get(clock, 0)
            moving["clocks.max." + clock] = top
            moving["clocks.applications." + clock] = gpu["app"].get(clock, gpu["default"].get(clock, "[N/A]"))
            moving["clocks.default_applications." + clock] = gpu["default"].get(clock, "[N/A]")
        asked = moving["clocks.applications.graphics"]
        moving["clocks.applications.graphics"] = min(asked, gpu["app_clip"]) if gpu["app_clip"] else asked
        cells = {
            **moving,
            "index": gpu["index"],
            "uuid": f"GPU-{gpu['index']}",
            "pci.bus_id": gpu["bus"],
            "name": "A100-SXM4-40GB",
            "driver_version": state["driver"],
            "persistence_mode": {True: "Enabled", False: "Disabled", None: "[N/A]"}[gpu["persistence"]],
            "clocks_event_reasons.active": hex(gpu["reasons"]),
            "clocks_throttle_reasons.active": hex(gpu["reasons"]),
        }
        print(", ".join(str(cells[name]) for name in names))
    sys.exit(0)
assert words[0] == "-i", words
gpu = next(gpu for gpu in state["gpus"] if gpu["bus"] == words[1])
option, value = words[2], [*words[3:], ""][0]
if state["denied"]:
    print(f"The current user does not have permission to change clocks for GPU {words[1]}.\nTerminating early.")
    sys.exit(4)
if option in gpu["unsupported"]:
    print(f"{state['unsupported_text']} {words[1]}.\nTreating as warning and moving on.\nAll done.")
    sys.exit(state["unsupported_status"])
if option in ("-lgc", "-lmc"):
    low, high = map(int, value.split(","))
    gpu["lock"]["graphics" if option == "-lgc" else "memory"] = high
elif option in ("-rgc", "-rmc"):
    gpu["lock"].pop("graphics" if option == "-rgc" else "memory", None)
elif option == "-ac":
    memory, graphics = map(int, value.split(","))
    gpu["app"] = {"memory": memory, "graphics": graphics}
elif option == "-rac":
    gpu["app"] = {}
elif option == "-pm":
    gpu["persistence"] = value == "1"
else:
    print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
    sys.exit(1)
keep()
print("All done.")
