# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of the lab's nodes, for tests that start containers of their own.

lab_image.py [SUITE]    build it if it is not there, and print its name
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAID = "The image is "
# The role builds what it does not find, and finds it the second time.
FIND = {"ansible.builtin.include_role": {"name": "lab_nodes", "tasks_from": "image", "public": True}}
TELL = {"ansible.builtin.debug": {"msg": SAID + "{{ __lab_nodes_images.images[0].RepoTags[0] }}."}}
PLAY = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [FIND, FIND, TELL]}]


def lab_image(suite: str = "bookworm") -> str:
    """Return the name of the image that ``make lab SUITE=…`` starts its nodes from; it is built if it is not there."""
    (ROOT / ".build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lab-image-", dir=ROOT / ".build") as name:
        place = Path(name)
        (place / "play.yml").write_text(json.dumps(PLAY))
        given = {"lab_nodes_suite": suite, "lab_nodes_state_dir": name}
        done = subprocess.run(
            [sys.executable, "-m", "ansible.cli.playbook", "-e", json.dumps(given), str(place / "play.yml")],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_ROLES_PATH": str(ROOT / "lab/roles"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(rf"{SAID}(\S+)\.\"", done.stdout)
    if done.returncode or not found:
        raise SystemExit(done.stdout + done.stderr)
    return found[1]


if __name__ == "__main__":
    print(lab_image(*sys.argv[1:]))
