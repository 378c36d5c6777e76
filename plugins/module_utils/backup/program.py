# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back up without Ansible, from a timer. Its argument is a file of options; the role slurm_backup has both."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.model import BackupError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.module import SPEC, Backup
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.database import DumpError


def main(arguments: t.Sequence[str]) -> int:
    """Back up every part that the file names; the exit status is 1 when one of them failed."""
    defaults = {name: option.get("default") for name, option in SPEC.items()}
    failed = 0
    for chosen in json.loads(Path(arguments[0]).read_text(encoding="utf-8")):
        try:
            result = Backup({**defaults, **chosen, "state": "present"}).perform()
        except (BackupError, DumpError, OSError, ValueError) as exc:
            sys.stderr.write(f"No backup of part {chosen['part']} of {chosen['cluster']}: {exc}\n")
            failed = 1
            continue
        sys.stdout.write(f"{result['text']}\n")
    return failed
