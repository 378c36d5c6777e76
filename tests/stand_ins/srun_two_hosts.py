# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An srun on the hosts of STAND_IN_HOSTS, which are namespaces: their addresses and the words to enter them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

hosts = json.loads(os.environ["STAND_IN_HOSTS"])
words, options = sys.argv[1:], {}
while words[0].startswith("-"):
    name, dummy, value = words.pop(0).partition("=")
    options[name] = value
per_node = int(options.get("--ntasks-per-node", 1))
asked = options.get("--nodelist", ",".join(address for address, enter in hosts.values())).split(",")
hosts = {name: enter for name, (address, enter) in hosts.items() if address in asked}
tasks = []
for node, (name, enter) in enumerate(hosts.items()):
    for local in range(per_node):
        task = {
            "SLURM_PROCID": node * per_node + local,
            "SLURM_LOCALID": local,
            "SLURM_NODEID": node,
            "SLURM_NTASKS": per_node * len(hosts),
            "SLURMD_NODENAME": name,
        }
        variables = {**os.environ, **{key: str(value) for key, value in task.items()}}
        tasks.append(subprocess.Popen([*enter, *words], env=variables))
for number in (signal.SIGUSR1, signal.SIGTERM):
    # nsenter is what was started; the task is its child.
    signal.signal(
        number,
        lambda number, dummy: [
            os.kill(int(child), number)
            for task in tasks
            for child in Path(f"/proc/{task.pid}/task/{task.pid}/children").read_text().split()
        ],
    )
codes = [task.wait() for task in tasks]
sys.exit(max(abs(code) for code in codes))
