# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from types import ModuleType

import pytest
from ansible.module_utils import basic

from ansible_collections.hpcai.gpu_cluster.plugins.modules import slurm_release_info, slurm_reservation

Answer = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> t.Callable[..., dict[str, t.Any]]:
    def run(module: ModuleType, answer: Answer | None, **params: t.Any) -> dict[str, t.Any]:
        monkeypatch.setattr(
            basic.AnsibleModule, "get_bin_path", lambda dummy, name, required=False: name if answer else None
        )
        monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda dummy, argv, **rest: answer and answer(argv))
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": params}).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)  # since ansible-core 2.19
        with pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_a_controller_that_does_not_answer_is_named(call: t.Callable[..., dict[str, t.Any]]) -> None:
    found = call(
        slurm_reservation, lambda argv: (1, "", "Unable to contact slurm controller"), name="hpcai-a", nodes="c1"
    )
    assert found["failed"] and "Reservation hpcai-a cannot be present: scontrol show" in found["msg"]
    assert "Unable to contact" in found["msg"]


def test_nodes_are_needed_and_names_are_ours(call: t.Callable[..., dict[str, t.Any]]) -> None:
    assert "nodes" in call(slurm_reservation, lambda argv: (0, "", ""), name="hpcai-a")["msg"]
    assert "not ours" in call(slurm_reservation, lambda argv: (0, "", ""), name="maint", state="absent")["msg"]


def test_a_reservation_that_is_not_there_is_absent(call: t.Callable[..., dict[str, t.Any]]) -> None:
    found = call(
        slurm_reservation, lambda argv: (0, "No reservations in the system\n", ""), name="hpcai-a", state="absent"
    )
    assert not found["changed"] and found["reservation"] == {}


def test_the_installed_release_is_told(call: t.Callable[..., dict[str, t.Any]]) -> None:
    assert call(slurm_release_info, lambda argv: (0, "slurm-wlm 24.11.5\n", ""))["version"] == "24.11.5"
    assert call(slurm_release_info, None)["version"] == ""
    broken = call(slurm_release_info, lambda argv: (1, "", "error while loading shared libraries"))
    assert broken["failed"] and "shared libraries" in broken["msg"]
