# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The password of a CIFS mount is in no output, whatever fails or changes."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter, of_clone, play_here

ROOT = Path(__file__).resolve().parents[3]
PASSWORD, OTHER = "Geheim-4711", "Auch-Nirgends-0815"
# Every host fails in another task.
FAILURES: dict[str, tuple[str, dict[str, t.Any], str]] = {
    "inputs": ("main", {"type": "nsf"}, "value of type must be one of"),
    "credentials": ("credentials", {"type": "cifs", "source": "//files/data"}, "Write CIFS credentials"),
    "mount": (
        "mounts",
        {"type": "cifs", "source": "//files/data", "state": "there"},
        "Mount directories, now and at boot",
    ),
    "existing": ("mounts", {"type": "existing"}, "mount of its own"),
    "user": ("main", {"type": "cifs", "options": [f"ro,user=hpc%{PASSWORD}"]}, "holds a password"),
    "option": ("main", {"type": "cifs", "options": [f"ro,password={PASSWORD}"]}, "holds a password"),
}


def reports(place: Path) -> t.Iterator[Path]:
    return (path for path in (place / "report").rglob("*") if path.is_file())


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
    assert not any(PASSWORD in path.read_text() for path in reports(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="the files are root's")
def test_credentials_are_root_s_alone_and_in_no_output(tmp_path: Path) -> None:
    """The directory above has files that jobs of users read; it was root's alone where credentials came first."""
    above = tmp_path / "etc/hpcai"
    mount: dict[str, t.Any] = {"path": "/data", "type": "cifs", "source": "//files/data"}
    mount["credentials"] = {"username": "hpc", "password": PASSWORD}
    inputs = {
        "shared_storage_mounts": [mount],
        "shared_storage_credentials_dir": str(above / "cifs"),
    }
    role = {"name": "hpcai.gpu_cluster.shared_storage", "tasks_from": "credentials"}
    play_here(tmp_path, [{"include_role": role}], inputs)
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (above.parent, above, above / "cifs")]
    assert modes == [0o755, 0o755, 0o700]
    (file,) = (above / "cifs").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD in file.read_text()
    # A new password is a change, and neither is shown.
    mount["credentials"]["password"] = OTHER
    inputs["hpcai_node"] = {"packages": ["cifs-utils", "nfs-common"], "files": {}}
    whole = {"name": "hpcai.gpu_cluster.shared_storage"}
    for part, options in ((whole, ["--check", "--diff", "-vvv"]), (role, ["--diff", "-vvv"])):
        done = play_here(tmp_path, [{"include_role": part}], inputs, *options)
        said = done.stdout + done.stderr
        assert "changed: [localhost] => (item=(censored due to no_log))" in said, said
        assert part is role or "Mount directories, now and at boot" in said, said
        assert PASSWORD not in said and OTHER not in said
        assert not any(word in path.read_text() for path in reports(tmp_path) for word in (PASSWORD, OTHER))
    assert OTHER in file.read_text() and PASSWORD not in file.read_text()
