# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The password of a CIFS mount is in no output, whatever fails."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter, of_clone, play_here

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


@pytest.mark.skipif(os.geteuid() != 0, reason="the files are root's")
def test_the_directory_above_the_credentials_is_open_to_those_who_read_what_else_is_in_it(tmp_path: Path) -> None:
    """/etc/hpcai has files that jobs of users read; it was root's alone where credentials came first."""
    above = tmp_path / "etc/hpcai"
    mount = {"path": "/data", "type": "cifs", "source": "//files/data"}
    inputs = {
        "shared_storage_mounts": [{**mount, "credentials": {"username": "hpc", "password": PASSWORD}}],
        "shared_storage_credentials_dir": str(above / "cifs"),
    }
    role = {"name": "hpcai.gpu_cluster.shared_storage", "tasks_from": "credentials"}
    play_here(tmp_path, [{"include_role": role}], inputs)
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (above.parent, above, above / "cifs")]
    assert modes == [0o755, 0o755, 0o700]
    (file,) = (above / "cifs").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
