# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages are held and given back, on a host that is played."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as managed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _packages


class Locked(Exception):
    """What fail_json is here."""


class Played:
    """dpkg with one package; its database may be locked."""

    check_mode = False

    def __init__(self, record: Path, state: str = "present", locked: bool = False) -> None:
        wanted = {"packages": ["linux-image-*"], "automatic_upgrades": True, "only_on": []}
        self.params = {"state": state, "record": str(record), **wanted}
        self.locked = locked

    held = "install"

    def get_bin_path(self, name: str) -> str:
        return name

    def set_fs_attributes_if_different(self, file_args: dict[str, t.Any], changed: bool) -> bool:
        return changed

    def run_command(self, argv: list[str], check_rc: bool) -> tuple[int, str, str]:
        if argv[0] == "apt-mark" and self.locked:
            raise Locked
        if argv[0] == "apt-mark":
            Played.held = {"hold": "hold", "unhold": "install"}[argv[1]]
        return 0, f"linux-image-azure {self.held} installed\n", ""


def bring(played: Played) -> dict[str, t.Any]:
    return _packages.perform(t.cast("t.Any", played), played.params)


def test_what_a_locked_dpkg_refused_is_given_back_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "_known", lambda owner: False)
    monkeypatch.setattr(_packages, "APT", str(tmp_path / "apt"))
    record = tmp_path / "state/record.json"
    assert bring(Played(record))["held"] == ["linux-image-azure"]
    assert not bring(Played(record))["changed"]
    with pytest.raises(Locked):
        bring(Played(record, "absent", locked=True))
    assert json.loads(record.read_text())["held"] == ["linux-image-azure"]
    assert bring(Played(record, "absent"))["released"] == ["linux-image-azure"]
    assert (Played.held, record.exists()) == ("install", False)
