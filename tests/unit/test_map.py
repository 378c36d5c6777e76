# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The map is true: the files that it names exist, functions are in their files, imports go down as it draws them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UTILS = ROOT / "plugins/module_utils"
HOME = "ansible_collections.hpcai.gpu_cluster.plugins.module_utils"
ARCHITECTURE = "docs/architecture.md"
PAGES = ("CONTRIBUTING.md", ARCHITECTURE, "docs/style.md", "docs/glossary.md")
FOLDERS = "plugins|roles|playbooks|tests|extensions|docs|benchmarks|inventories|lab"
# A path with a placeholder or a pattern in it stands for many files.
PATH = re.compile(rf"`((?:{FOLDERS})/[^`\s<>*…]*)`")
FUNCTIONS = re.compile(r"`(plugins/[^`\s<>*…]*\.py)`((?:,? `\w+\(\)`)+)")
LEVEL = re.compile(r"^(\d)  (\w[\w ]*)$", re.MULTILINE)


def text(page: str) -> str:
    """Return a page with its lines joined: a function may stand on the line below its file."""
    return re.sub(r"\s*\n\s*", " ", (ROOT / page).read_text(encoding="utf-8"))


def named(page: str) -> list[str]:
    return sorted(set(PATH.findall(text(page))))


@pytest.mark.parametrize(("page", "path"), [(page, path) for page in PAGES for path in named(page)])
def test_a_path_that_is_named_exists(page: str, path: str) -> None:
    assert (ROOT / path).exists(), f"{page} names {path}"


def functions() -> list[tuple[str, str]]:
    found = FUNCTIONS.findall(text(ARCHITECTURE))
    return sorted({(path, name) for path, names in found for name in re.findall(r"\w+", names)})


@pytest.mark.parametrize(("path", "name"), functions())
def test_a_function_is_in_the_file_that_it_stands_behind(path: str, name: str) -> None:
    if not (ROOT / path).exists():
        pytest.skip("the test above says that the file is missing")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def levels() -> dict[str, int]:
    drawn = (ROOT / ARCHITECTURE).read_text(encoding="utf-8")
    return {topic: int(level) for level, topics in LEVEL.findall(drawn) for topic in topics.split()}


def imported(path: Path) -> set[str]:
    """Return the topics that a file imports from, inside functions and for types as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{HOME}."):
            below = str(node.module)[len(HOME) + 1 :]
            found |= {below.split(".", maxsplit=1)[0]} if below else {alias.name for alias in node.names}
    return {name for name in found if (UTILS / name).is_dir()}


def test_every_topic_is_in_the_picture() -> None:
    assert set(levels()) == {path.parent.name for path in UTILS.glob("*/__init__.py")}


@pytest.mark.parametrize("topic", sorted(levels()))
def test_a_topic_imports_from_lower_lines_only(topic: str) -> None:
    level = levels()
    wrong = {
        f"{path.relative_to(UTILS)} imports {other}"
        for path in (UTILS / topic).rglob("*.py")
        for other in imported(path) - {topic}
        if level[other] >= level[topic]
    }
    assert not wrong


def test_what_has_no_topic_imports_none() -> None:
    assert {path.name for path in UTILS.glob("*.py") if imported(path)} == set()
