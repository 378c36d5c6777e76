# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy a shipped inventory to a directory and change lines of it, as its user does: those that are marked alone.

site.py static DIRECTORY
site.py existing_slurm DIRECTORY
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[4] / "inventories"
MARK = "# change"
# Per inventory and file: what a marked line has, what is to be there instead, and in how many lines.
CHANGES = {
    "static": {
        "hosts.yml": [("admin", "root", 1), ("head-01", "ctl", 3), ("gpu-[01:02]", "c[1:2]", 1)],
        # A container mounts no NFS; what runs it has mounted the directory before.
        "group_vars/all.yml": [('type: nfs, source: "files:/export/shared"', "type: existing", 1)],
    },
    "existing_slurm": {
        "hosts.yml": [("login-01", "ctl", 1)],
        "group_vars/all.yml": [("gpu-[01-02]", "c[1-2]", 1)],
    },
}


def main(kind: str, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(SHIPPED / kind, directory)
    for name, changes in CHANGES[kind].items():
        lines = (directory / name).read_text(encoding="utf-8").splitlines()
        for old, new, count in changes:
            marked = [number for number, line in enumerate(lines) if MARK in line and old in line.split(MARK)[0]]
            if len(marked) != count:
                raise SystemExit(f"{kind}/{name} has {len(marked)} lines with {old} that are marked, not {count}")
            for number in marked:
                lines[number] = lines[number].replace(old, new, 1)
        (directory / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
