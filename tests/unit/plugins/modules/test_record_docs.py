# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All measuring modules document a check record alike, and as ``record()`` returns it."""

from __future__ import annotations

import ast
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record

MODULES = Path(__file__).resolve().parents[4] / "plugins/modules"
TYPES = {
    "schema": "int",
    "time": "float",
    "seconds": "float",
    "scope": "dict",
    "context": "dict",
    "metrics": "list",
    "samples": "list",
}
# What is said in the same words everywhere, as gpu_bandwidth has it; what a module knows besides stands behind it.
SHARED = ("schema", "run", "check", "time", "seconds", "verdict", "class", "reason", "metrics", "context")
# DCGM judges by itself, in words of its own.
OWN = {"dcgm_diag": {"verdict", "class", "reason", "metrics", "context"}}
OWN["dcgm_health"] = {"verdict", "reason", "metrics", "context"}


def documented() -> dict[str, dict[str, t.Any]]:
    """Return what each module says of the keys of its records."""
    found = {}
    for path in sorted(MODULES.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RETURN":
                values = yaml.safe_load(ast.literal_eval(node.value)) or {}
                keys = (values.get("checks") or values.get("check") or {}).get("contains")
                found.update({path.stem: keys} if keys else {})
    return found


RECORDS = documented()


def sentences(key: dict[str, t.Any]) -> list[str]:
    description = key["description"]
    return [description] if isinstance(description, str) else description


def test_the_measuring_modules_are_found() -> None:
    assert {"gpu_bandwidth", "gpu_clocks", "gpu_info", "hpl", "nccl_tests", "nvme_scratch"} <= set(RECORDS)


@pytest.mark.parametrize("module", RECORDS)
def test_the_keys_are_those_of_a_record_in_its_order(module: str) -> None:
    keys = RECORDS[module]
    assert list(keys) == list(record("check", "n1", time=1.0, verdict="pass"))
    assert {name: key["type"] for name, key in keys.items()} == {name: TYPES.get(name, "str") for name in keys}
    assert all("sample" in key for key in keys.values())
    assert all(keys[name]["elements"] == "dict" for name in ("metrics", "samples"))


@pytest.mark.parametrize("module", RECORDS)
def test_what_all_records_have_is_said_in_the_same_words(module: str) -> None:
    for name in sorted(set(SHARED) - OWN.get(module, set())):
        shared, text = sentences(RECORDS["gpu_bandwidth"][name]), sentences(RECORDS[module][name])
        first = shared[: 1 if name in ("metrics", "context") else len(shared)]
        assert text[: len(first)] == first, (module, name)
