# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports that are found without parsing a file are those that Python's parser finds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._imports import import_statements
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import Imports

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
FILES = sorted([*PLUGINS.glob("modules/*.py"), *PLUGINS.glob("module_utils/**/*.py")])


def required_and_other(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return all imports: those at the margin, which have to be there, and the others."""
    every = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))}
    margin = {ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
    return margin, every - margin


def when_it_runs(text: str) -> list[tuple[str, list[str]]]:
    found = Imports("package")
    found.visit(ast.parse(text))
    return sorted(found.imports)


def test_there_are_files() -> None:
    assert len(FILES) > 300


@pytest.mark.parametrize("place", ["modules", "module_utils"])
def test_they_are_what_the_parser_finds(place: str) -> None:
    for path in FILES:
        if path.relative_to(PLUGINS).parts[0] == place:
            text = path.read_text(encoding="utf-8")
            alone = import_statements(text)
            assert required_and_other(ast.parse(alone)) == required_and_other(ast.parse(text)), path
            assert when_it_runs(import_statements(text, for_types=False)) == when_it_runs(text), path


def test_each_kind_of_statement_is_found_where_it_stands() -> None:
    text = '''
"""A text that says import, and
from here to there."""
import json, sys  # noqa
from a.b import (
    c,
    d as e,
)

if t.TYPE_CHECKING:
    from a import only_for_types

    import another

def f():
    from . import late
    important = 1
    try:
        import maybe
    except ImportError:
        maybe = None
'''
    when = ["import json, sys  # noqa", "from a.b import (\n    c,\n    d as e,\n)"]
    late = ["if True:\n from . import late", "if True:\n import maybe"]
    types = ["if True:\n from a import only_for_types", "if True:\n import another"]
    assert import_statements(text) == "\n".join([*when, *types, *late])
    assert import_statements(text, for_types=False) == "\n".join([*when, *late])
