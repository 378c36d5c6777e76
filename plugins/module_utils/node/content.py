# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of this collection a node needs to configure itself: the roles of node.yml and what they call. Private."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

PLAYBOOK = "playbooks/node.yml"
# By names that are computed: the agent's parts, data.
ALWAYS = (
    "meta/runtime.yml",
    PLAYBOOK,
    "plugins/callback/node_result.py",
    "plugins/module_utils/agent",
    "plugins/module_utils/certify",
    "plugins/module_utils/drain",
    "plugins/module_utils/node/apply.py",
    "plugins/plugin_utils/profiles",
)
_NAME = re.compile(r"\bhpcai\.gpu_cluster\.(\w+)")
_PROGRAM = re.compile(r"hpcai\.gpu_cluster\.node_program',\s*'([\w.]+)'")
_OURS = r"ansible_collections\.hpcai\.gpu_cluster\.plugins\."
_FROM = re.compile(rf"^\s*from {_OURS}([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(rf"^\s*import {_OURS}([\w.]+)", re.MULTILINE)
# Where a role says what it calls; its page and its specification only speak of others.
_CALLS = ("tasks", "handlers", "defaults", "vars", "templates")


class BundleError(ValueError):
    """No bundle can be made; the text is fit for the user."""


class File(t.NamedTuple):
    data: bytes
    mode: int = 0o644


class Called(t.NamedTuple):
    """What texts name: roles and plugins, and the programs that they put on the node."""

    names: set[str]
    programs: set[str]


def texts(role: Path) -> list[str]:
    """Return the texts in which a role calls others."""
    return [
        path.read_text(encoding="utf-8", errors="replace")
        for path in files(role)
        if path.relative_to(role).parts[0] in _CALLS or path.relative_to(role) == Path("meta", "main.yml")
    ]


def called(root: Path) -> tuple[list[str], Called]:
    """Return the roles that the playbook brings along, and all that it and they name."""
    if not (root / PLAYBOOK).is_file():
        raise BundleError(f"{root} is not this collection: it has no {PLAYBOOK}")
    read_ahead = [(root / PLAYBOOK).read_text(encoding="utf-8")]
    roles: set[str] = set()
    found = Called(set(), set())
    while read_ahead:
        for text in read_ahead:
            found.names.update(_NAME.findall(text))
            found.programs.update(_PROGRAM.findall(text))
        new = {name for name in found.names - roles if (root / "roles" / name / "tasks").is_dir()}
        roles |= new
        read_ahead = [text for role in sorted(new) for text in texts(root / "roles" / role)]
    return sorted(roles), found


def plugins(root: Path, found: Called) -> list[Path]:
    """Return the plugins that are named; a file of filters has several, each with a page."""
    picked = []
    for kind in ("action", "lookup", "modules"):
        picked += [path for path in files(root / "plugins" / kind) if path.stem in found.names]
    for path in files(root / "plugins/filter"):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py" and any(f'"{name}"' in text for name in found.names):
            picked += [
                path,
                *(page for page in files(path.parent) if page.suffix == ".yml" and f'"{page.stem}"' in text),
            ]
    for name in sorted(found.programs):
        picked.append(place(root, f"module_utils.{name}"))
    return picked


def place(root: Path, module: str) -> Path:
    """Return the file of a module or package below plugins."""
    path = root.joinpath("plugins", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(root: Path, text: str) -> set[Path]:
    """Return the files that a Python text needs of this collection; fragments of documentation declare options."""
    modules = set(_IMPORT.findall(text))
    for module, names in _FROM.findall(text):
        modules |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    modules |= {f"doc_fragments.{name}" for name in _NAME.findall(text)}
    return {path for path in (place(root, module) for module in modules) if path.is_file()}


def collection(root: Path) -> tuple[dict[str, File], list[str]]:
    """Return the files of this collection that a node needs, by their paths in it, and the roles among them."""
    roles, found = called(root)
    ahead = [*plugins(root, found)]
    for name in ALWAYS:
        ahead += files(root / name) if (root / name).is_dir() else [root / name]
    for role in roles:
        ahead += [path for path in files(root / "roles" / role) if path.name != "README.md"]
    picked: dict[str, File] = {}
    while ahead:
        path = ahead.pop()
        name = path.relative_to(root).as_posix()
        if name not in picked:
            picked[name] = read(path)
            ahead += imported(root, picked[name].data.decode(errors="replace")) if path.suffix == ".py" else []
    return picked, roles


def files(folder: Path) -> list[Path]:
    """Return the files below a directory, sorted; none that an interpreter left behind."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def read(path: Path) -> File:
    """Return a file; of its mode counts only whether it is a program, for that is all that git keeps."""
    return File(path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
