# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import apply


def machine(root: Path, tag: str) -> Path:
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    (folder / "chassis_asset_tag").write_text(f"{tag}\n")
    return root


def never() -> str:
    raise AssertionError("asked a metadata service that is not Azure's")


def test_azure_says_what_the_machine_is(tmp_path: Path) -> None:
    assert apply.size(machine(tmp_path, apply.AZURE), lambda: "Standard_ND96isr_H100_v5") == "ND96isr_H100_v5"


@pytest.mark.parametrize("tag", ["", "Google Compute Engine", "No Asset Tag"])
def test_nobody_else_is_asked(tmp_path: Path, tag: str) -> None:
    assert apply.size(machine(tmp_path, tag), never) == ""


def test_a_machine_without_a_tag(tmp_path: Path) -> None:
    assert apply.size(tmp_path, never) == ""


@pytest.mark.parametrize(
    "said", ["", "<html>proxy</html>", "Standard_x; rm -rf /", "Basic_A1", "{{ 7*7 }}", "Standard_" + "x" * 99]
)
def test_an_answer_that_is_no_size_is_none(tmp_path: Path, said: str) -> None:
    assert apply.size(machine(tmp_path, apply.AZURE), lambda: said) == ""


def test_silence_is_asked_again_and_then_taken_for_no_answer(tmp_path: Path) -> None:
    asked: list[int] = []

    def fetch() -> str:
        asked.append(1)
        raise TimeoutError

    assert apply.size(machine(tmp_path, apply.AZURE), fetch) == ""
    assert len(asked) == 3


def test_one_answer_is_enough(tmp_path: Path) -> None:
    answers: list[t.Any] = [ConnectionResetError(), "Standard_ND96asr_v4"]

    def fetch() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    assert apply.size(machine(tmp_path, apply.AZURE), fetch) == "ND96asr_v4"
