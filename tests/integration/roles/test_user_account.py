# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""user_account makes who is missing and leaves who is there, root included. In check mode, as it is this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROLE = "hpcai.gpu_cluster.user_account"


def test_root_and_daemon_stay_as_they_are_and_nobody_gets_another_number(tmp_path: Path) -> None:
    asked = [("root", 0), ("daemon", 1), ("hpcai-nobody", 4711), ("daemon", 4711)]
    tasks = [
        {"include_role": {"name": ROLE}, "vars": {"user_account_name": name, "user_account_uid": uid}}
        for name, uid in asked
    ]
    play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-ilocalhost,", "-clocal", "--check", "play.yml"],
        cwd=tmp_path,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".build/collections"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "HPCAI_REPORT_DIR": str(tmp_path / "report"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    # Group and user of the third; the last is refused.
    assert output.count("changed: [localhost]") == 2, output
    assert (done.returncode, "daemon has uid 1 on localhost, not 4711" in output) == (2, True), output
