# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The coordinator of a certification as a process that can be killed: module certification without Ansible around it.

    certify.py AGENT OPTIONS

AGENT is the node agent, OPTIONS a file with the module's options as JSON; what the module returns is printed.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.module import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import CampaignSlurm


def run(argv: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main() -> int:
    given = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    params = {name: one.get("default") for name, one in SPEC.items()}
    found = module.perform({**params, **given}, CampaignSlurm(run), False)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    print(
        json.dumps(
            {"cpu": cpu, "run": found.run, "directory": found.folder, "resumed": found.resumed, "plan": found.plan}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
