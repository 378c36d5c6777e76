# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with NCCL's file on a host."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as managed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import config as task


class Module:
    check_mode = False

    def set_fs_attributes_if_different(self, file_args: dict[str, t.Any], changed: bool) -> bool:
        return changed


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    monkeypatch.setattr(managed, "_known", lambda owner: False)
    monkeypatch.setattr(task, "PATH", str(tmp_path / "nccl.conf"))
    for name in ("MOUNTS", "COPY", "DROPIN"):
        monkeypatch.setattr(task, name, str(tmp_path / "etc" / name))
    given = {"state": "present", "topology_file": None, "machine": {}, "containers": False}
    return {**given, "record": str(tmp_path / "record.json"), "variables": {"NCCL_A": 1, "NCCL_B": None}}


def test_null_leaves_a_variable_alone(params: dict[str, t.Any], tmp_path: Path) -> None:
    assert task.perform(Module(), params)["variables"] == {"NCCL_A": "1"}
    assert not task.perform(Module(), params)["changed"]
    assert task.perform(Module(), {**params, "state": "absent"})["changed"]
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one(params: dict[str, t.Any], tmp_path: Path) -> None:
    """Sites keep one file for all nodes; written through the link, it would be every node's."""
    (tmp_path / "central").write_text("NCCL_DEBUG=WARN\n")
    (tmp_path / "nccl.conf").symlink_to(tmp_path / "central")
    done = task.perform(Module(), params)
    assert not done["changed"]
    assert (done["findings"][-1]["level"], done["variables"]) == ("warn", {"NCCL_DEBUG": "WARN"})
    assert (tmp_path / "nccl.conf").is_symlink()
