# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tests find what they import: ``pythonpath`` of pyproject.toml says it once; no test changes ``sys.path``."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHANGES = ("append", "clear", "extend", "insert", "pop", "remove")


def is_program(tree: ast.Module, path: Path) -> bool:
    """Say whether a file is started by itself, so that no pytest has told it where to look."""
    guards = (node.test for node in tree.body if isinstance(node, ast.If))
    return path.name == "__main__.py" or any(ast.unparse(guard).startswith("__name__ ==") for guard in guards)


def changes_path(node: ast.AST) -> bool:
    """Say whether a statement or call changes ``sys.path``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        return ast.unparse(node.func.value) == "sys.path"
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(ast.unparse(target).startswith("sys.path") for target in targets)
    return False


def test_no_test_changes_where_python_looks():
    wrong = []
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("extensions/**/*.py")]):
        text = path.read_text(encoding="utf-8")
        if "sys.path" not in text:  # to parse all files takes seconds
            continue
        tree = ast.parse(text)
        if any(map(changes_path, ast.walk(tree))) and (not is_program(tree, path) or path.stem.startswith("test_")):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []
