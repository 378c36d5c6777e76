# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of what was built and trained with is that of the records, and pins are compared with the index."""

from __future__ import annotations

import json
import subprocess
import typing as t

import pytest
import torch_stack

FILES = [
    {"filename": "torch-2.7.1-cp310-cp310-manylinux_2_28_x86_64.whl", "requires-python": ">=3.9.0"},
    {"filename": "torch-2.7.1-cp311-cp311-manylinux_2_28_x86_64.whl", "requires-python": ">=3.9.0"},
    {"filename": "torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl", "yanked": "broken"},
    {"filename": "torch-2.11.0rc1.tar.gz"},
]


def test_the_table_is_that_of_the_records() -> None:
    page = torch_stack.PAGE.read_text()
    assert torch_stack.drawn(page, json.loads(torch_stack.RECORDS.read_text())) == page, "run make training-table"


def test_a_record_of_a_package_is_replaced_by_a_newer_one_with_the_same_pytorch() -> None:
    old = [{"package": "a", "torch": torch, "loaded": ["a"], "built": "", "date": "1"} for torch in ("2", "1")]
    new = [{"package": "a", "torch": "2", "loaded": ["a", "a_cuda"], "built": "for sm_90", "date": "2"}]
    assert torch_stack.merged(old, new) == [old[1], new[0]]


def test_what_other_extensions_came_to_stays() -> None:
    small = {"package": "apex", "torch": "2", "loaded": ["apex", "xentropy_cuda"], "built": "", "date": "1"}
    large = {"package": "apex", "torch": "2", "loaded": ["amp_C", "apex"], "built": "", "date": "2"}
    assert torch_stack.merged([small], [large]) == [large, small]


def test_what_was_compiled_for_other_gpus_stays() -> None:
    old = {"package": "apex", "torch": "2", "loaded": ["apex"], "built": "cuda_ext for sm_80, sm_90", "date": "1"}
    new = {**old, "built": "cuda_ext for sm_100", "date": "2"}
    both = {**old, "built": "cuda_ext for sm_80, sm_90, sm_100", "date": "3"}
    assert torch_stack.merged([old], [new]) == [old, new]
    assert torch_stack.merged([old, new], [both]) == [both]


def test_what_nobody_has_tried_is_no() -> None:
    record = {"package": "a", "version": "1", "torch": "2", "python": "3", "resolved": True, "built": "", "loaded": []}
    (row,) = torch_stack.table([{**record, "trained": [], "date": "today"}])[2:]
    assert row == "| `a` | 1 | 2 | 3 | yes | no | no | no | no | today |"


@pytest.mark.parametrize(
    ("pin", "pythons", "problem"),
    [
        ("torch==2.7.1", "==3.10,==3.11", ""),
        ("torch==2.7.1", ">=3.10,<3.12", ""),
        ("torch==2.7.1", "==3.12", "we say that torch==2.7.1 is for Python 3.12, the index has"),
        ("torch==2.7.1", ">=3.8,<3.12", "we say that torch==2.7.1 is for Python 3.8, the index has"),
        ("torch==2.10.0", "", "torch==2.10.0 is withdrawn: broken"),
        ("torch==2.7", "", "the index has no torch==2.7"),
    ],
)
def test_a_pin_is_compared_with_the_index(pin: str, pythons: str, problem: str) -> None:
    line, problems = torch_stack.judged("build", pin, pythons, FILES)
    assert f"build: {pin}, newest 2.10.0" in line
    assert any(problem in one for one in problems) if problem else problems == []


def test_the_check_asks_for_every_pin_and_fails_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def fetch(address: str) -> dict[str, t.Any]:
        asked.append(address.rstrip("/").rpartition("/")[2])
        return {"files": []}

    assert torch_stack.check(fetch, lambda *dummy: "") == 1
    assert {"torch", "deepspeed", "megatron-core"} <= set(asked)
    assert "metaseq" not in asked
    assert "build cu130: the index has no torch==" in capsys.readouterr().out


def test_what_belongs_to_each_build_is_resolved_for_each_of_its_pythons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_stack, "pinned", dict)
    asked = {}

    def resolve(build: str, python: str, requirements: list[str]) -> str:
        asked[build, python] = requirements
        return "torch and torchvision do not go together" if (build, python) == ("cu126", "3.12") else ""

    assert torch_stack.check(resolve=resolve) == 1
    said = capsys.readouterr().out
    assert "cu126, Python 3.12: torch==2.7.1, torchvision==0.22.1, torchaudio==2.7.1" in said
    assert said.endswith("\ntorch and torchvision do not go together\n")
    # PyPI has no PyTorch for CPUs, and no torchvision for the newest.
    assert {build for build, dummy in asked} == {"cu126", "cu128", "cu130", "cu132"}
    assert not any(one.startswith("torchvision") for one in asked["cu132", "3.14"])
    assert any(one.startswith("onnxruntime-training==") for one in asked["cu126", "3.11"])
    assert not any(one.startswith("onnxruntime-training==") for one in asked["cu126", "3.12"])


def test_a_conflict_is_told_in_uvs_words() -> None:
    done = subprocess.CompletedProcess([], 1, "", "  x No solution found\n because torch==1 ")
    given = {}

    def run(argv: list[t.Any], **options: t.Any) -> t.Any:
        given.update(options, argv=argv)
        return done

    said = torch_stack.unresolved("cu130", "3.12", ["torch==1", "deepspeed==2"], run)
    assert said == "build cu130, Python 3.12: x No solution found because torch==1"
    assert given["input"] == "torch==1\n"
    assert given["argv"][given["argv"].index("--python-version") + 1] == "3.12"


def test_the_choice_of_a_build_is_that_of_the_role() -> None:
    rows = {row.split(" | ")[0].strip("| "): row for row in torch_stack.chosen()}
    assert rows["580.65.06"].count("`cu130`") == 3
    assert rows["560.28.03"].count("`cu126`") == 3
    assert rows["450.80.02"].count("refused") == 4


def test_missing_wheels_are_named(tmp_path: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCAI_CACHE_DIR", str(tmp_path))
    assert any(one.startswith("megatron-core (") for one in torch_stack.missing())
    monkeypatch.setattr(torch_stack.sys, "argv", ["torch_stack.py", "cached"])
    assert torch_stack.main() == 1


def test_the_list_of_apex_is_compared_with_a_clone() -> None:
    releases = torch_stack.versions.APEX_RELEASES
    commits = list(releases)

    def git(argv: list[str], **dummy: t.Any) -> subprocess.CompletedProcess[str]:
        """A clone without the oldest commit, with another 25.09, in which nothing was ever mended."""
        verb, words = argv[3], argv[4:]
        if verb == "rev-parse":
            tag = words[0].removeprefix("refs/tags/").removesuffix("^{commit}")
            (found,) = (one for one, release in releases.items() if tag in release.name.split(", "))
            return subprocess.CompletedProcess(argv, 0, stdout="0123" if tag == "25.09" else found)
        lost = commits[0] in words[-1] or verb == "merge-base"
        return subprocess.CompletedProcess(argv, int(lost), stdout="")

    problems = torch_stack.of_clone("/clone", git)
    assert problems[0] == f"Apex 22.03: the clone has no {commits[0]}"
    assert f"Apex 25.09: we say {commits[-2]}, the clone 0123" in problems
    assert "Apex 23.05: 6943fd26e0 is not in it" in problems
