# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The munge key in check mode: what is not kept is not returned."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
MODULE = "ansible_collections.hpcai.gpu_cluster.plugins.modules.munge_key"


def run(path: Path, check: bool) -> dict[str, t.Any]:
    arguments = {"ANSIBLE_MODULE_ARGS": {"path": str(path), "owner": "nobody-here", "_ansible_check_mode": check}}
    done = subprocess.run(
        [sys.executable, "-m", MODULE, json.dumps(arguments)],
        env={"PYTHONPATH": str(ROOT / ".build/collections"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return t.cast("dict[str, t.Any]", json.loads(done.stdout))


def test_check_mode_returns_no_key_that_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "munge.key"
    first, second = run(path, True), run(path, True)
    assert (first["changed"], first["key"]) == (True, "")
    assert second["key"] == first["key"]
    assert not path.exists()
    path.write_bytes(b"short")
    assert (run(path, True)["changed"], run(path, True)["key"]) == (True, "")
    assert path.read_bytes() == b"short"


def test_a_key_is_made_once_and_returned(tmp_path: Path) -> None:
    path = tmp_path / "munge.key"
    made = run(path, False)
    assert made["changed"]
    assert base64.b64decode(made["key"]) == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o400
    assert [run(path, check)["key"] for check in (True, False)] == [made["key"]] * 2
    assert not run(path, True)["changed"]
