# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All modules have the entry of docs/style.md: options in a SPEC, the work in one call, and ``main()`` around both."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MODULES = Path(__file__).resolve().parents[4] / "plugins/modules"
MOST_LINES = 25


def faults(tree: ast.Module) -> list[str]:
    """Say what of a module's ``main()`` is not the entry that all have."""
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    if not mains:
        return []  # it runs on the control host alone, as an action plugin
    (main,) = mains
    found = []
    (options,) = [
        node.value for node in ast.walk(main) if isinstance(node, ast.keyword) and node.arg == "argument_spec"
    ]
    parts = options.values if isinstance(options, ast.Dict) and not any(options.keys) else [options]
    if not all(isinstance(part, (ast.Name, ast.Attribute)) and ast.unparse(part).endswith("SPEC") for part in parts):
        found.append(f"argument_spec is {ast.unparse(options)}")
    for tried in (node for node in main.body if isinstance(node, ast.Try)):
        step = tried.body[0]
        if len(tried.body) > 1 or not (isinstance(step, ast.Assign) and isinstance(step.value, ast.Call)):
            found.append(f"more than one call is tried, from {ast.unparse(step)!r} on")
    if sum(isinstance(node, ast.Try) for node in ast.walk(main)) > 1:
        found.append("several things are tried")
    exits = [node for node in ast.walk(main) if isinstance(node, ast.Attribute) and node.attr == "exit_json"]
    if len(exits) != 1 or not ast.unparse(main.body[-1]).startswith("module.exit_json("):
        found.append("exit_json is not the last statement, or not the only one")
    lines = (main.end_lineno or 0) - main.lineno + 1
    return [*found, f"main() has {lines} lines"] if lines > MOST_LINES else found


@pytest.mark.parametrize("path", sorted(MODULES.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_has_the_common_entry(path):
    assert not faults(ast.parse(path.read_text(encoding="utf-8")))
