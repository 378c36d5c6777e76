# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An srun that starts all tasks on this machine, each with the program on its standard input."""

from __future__ import annotations

import os
import subprocess
import sys

if os.environ.get("FAKE_FAULT") == "busy":
    sys.exit("srun: error: Unable to allocate resources: Requested nodes are busy")
options = [word for word in sys.argv[1:] if word.startswith("--")]
command, program = sys.argv[1 + len(options) :], sys.stdin.read()
tasks = int(next(word for word in options if word.startswith("--ntasks=")).partition("=")[2])
running = []
for rank in range(tasks):
    variables = {**os.environ, "SLURM_PROCID": str(rank), "SLURM_STEP_NODELIST": "localhost"}
    running.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=variables, text=True))
for process in running:
    process.stdin.write(program)
    process.stdin.close()
sys.exit(max(process.wait() for process in running))
