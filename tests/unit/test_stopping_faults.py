# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults that `make azure-faults FAULT=stopping` puts back can still be put back, and leave readable files."""

from __future__ import annotations

import ast
import runpy
import shutil
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
_STOPPING = runpy.run_path(str(ROOT / "extensions/molecule/azure/tests/stopping.py"))
STOPPING, with_fault = _STOPPING["STOPPING"], _STOPPING["with_fault"]


@pytest.mark.parametrize("fault", STOPPING.values(), ids=list(STOPPING))
def test_a_fault_can_be_put_back(fault: t.Any, tmp_path: Path) -> None:
    for path in {edit.path for edit in fault.edits}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for edit in fault.edits:
        with_fault(tmp_path, edit)
        text = (tmp_path / edit.path).read_text()
        assert text != (ROOT / edit.path).read_text()
        if edit.path.endswith(".py"):
            ast.parse(text)
        if edit.path.endswith(".yml"):
            yaml.safe_load(text)


def test_what_changed_meanwhile_is_told(tmp_path: Path) -> None:
    (edit,) = STOPPING["template without launch_parameters"].edits
    (tmp_path / edit.path).parent.mkdir(parents=True)
    (tmp_path / edit.path).write_text("nothing of it\n")
    with pytest.raises(ValueError, match="does not have once"):
        with_fault(tmp_path, edit)
