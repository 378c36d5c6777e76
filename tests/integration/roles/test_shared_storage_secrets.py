# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The password of a CIFS mount is in no output, whatever fails."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_playbook import ansible_playbook, interpreter, of_clone

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "Geheim-4711"
# Every host fails in another task.
FAILURES: dict[str, tuple[str, dict[str, t.Any], str]] = {
    "inputs": ("main", {"type": "nsf"}, "value of type must be one of"),
    "credentials": ("mounts", {"type": "cifs", "source": "//files/data"}, "Write CIFS credentials"),
    "mount": (
        "mounts",
        {"type": "cifs", "source": "//files/data", "state": "there"},
        "Mount directories, now and at boot",
    ),
    "existing": ("mounts", {"type": "existing"}, "mount of its own"),
    "user": ("main", {"type": "cifs", "options": [f"ro,user=hpc%{PASSWORD}"]}, "holds a password"),
    "option": ("main", {"type": "cifs", "options": [f"ro,password={PASSWORD}"]}, "holds a password"),
}


def test_no_failure_shows_a_password(tmp_path: Path) -> None:
    hosts, plays = {}, []
    for name, (part, fields, dummy) in FAILURES.items():
        # Without a user name the file cannot be drawn.
        login = {"password": PASSWORD} if name == "credentials" else {"password": PASSWORD, "username": "hpc"}
        hosts[name] = {
            "ansible_python_interpreter": interpreter(),
            "shared_storage_mounts": [{"path": str(tmp_path / name), "credentials": login, **fields}],
            "shared_storage_credentials_dir": str(tmp_path),
        }
        role = {"name": "hpcai.gpu_cluster.shared_storage", "tasks_from": part}
        go_on = {"name": "Go on", "meta": "noop"}
        task = {"name": "Share", "block": [{"name": "Share", "include_role": role}], "rescue": [go_on]}
        plays.append({"hosts": name, "gather_facts": False, "tasks": [task]})
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    (tmp_path / "play.json").write_text(json.dumps(plays))
    arguments = ["--connection=local", "--check", "--diff", "-vvv", "-i", "hosts.json", "play.json"]
    done = ansible_playbook(*arguments, cwd=tmp_path, env=of_clone(tmp_path))
    text = done.stdout + done.stderr
    assert text.count("rescued=1") == len(FAILURES), text
    assert all(words in text for dummy, dummy2, words in FAILURES.values()), text
    assert PASSWORD not in text
    assert not any(PASSWORD in path.read_text() for path in (tmp_path / "report").rglob("*") if path.is_file())
