# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""user_account makes who is missing and leaves who is there, root included. In check mode, as it is this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_playbook import play_here

ROLE = "hpcai.gpu_cluster.user_account"


def play(directory: Path, tasks: list[dict[str, object]], fails: bool) -> str:
    done = play_here(directory, tasks, None, "--check", fails=fails)
    return done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_no_home_is_made_where_another_user_owns_what_is_above_it(tmp_path: Path) -> None:
    """On a share where everybody may write: who makes the directory of homes first could exchange each home later."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    given = {"user_account_name": "hpcai-nobody", "user_account_uid": 4711}
    role: dict[str, object] = {
        "include_role": {"name": ROLE},
        "vars": {**given, "user_account_home": str(shared / "home/hpcai-nobody")},
    }
    told = play(tmp_path, [role], fails=False)
    assert "Create the user" in told, told
    (shared / "home").mkdir()
    os.chown(shared / "home", 65534, 65534)
    told = play(tmp_path, [role], fails=True)
    assert "Cannot use a path that others could exchange" in told and str(shared / "home") in told, told
    assert "Create the user's group" not in told
    (shared / "home").rmdir()
    (shared / "home").symlink_to(tmp_path)
    os.chown(shared / "home", 65534, 65534, follow_symlinks=False)
    told = play(tmp_path, [role], fails=True)
    assert "Cannot use a path that others could exchange" in told, told


def test_root_and_daemon_stay_as_they_are_and_nobody_gets_another_number(tmp_path: Path) -> None:
    asked = [("root", 0), ("daemon", 1), ("hpcai-nobody", 4711), ("daemon", 4711)]
    tasks = [
        {"include_role": {"name": ROLE}, "vars": {"user_account_name": name, "user_account_uid": uid}}
        for name, uid in asked
    ]
    output = play(tmp_path, tasks, fails=True)
    # Group and user of the third; the last is refused.
    assert output.count("changed: [localhost]") == 2, output
    assert "daemon has uid 1 on localhost, not 4711" in output, output
