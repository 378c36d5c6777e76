# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles take of each other: public names that a README lists, and entry points whose inputs Ansible validates."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml
from role_readmes import ROLES

ROOT = Path(__file__).resolve().parents[3]
NAMES = sorted((role.name for role in ROLES), key=len, reverse=True)
PRIVATE = re.compile(r"\b__[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
KINDS = {".yml", ".yaml", ".j2"}
REGISTERED = re.compile(r"^\s*register: (\w+)", re.MULTILINE)
SUFFIXES = (".yml", ".yaml", ".json")


def texts(folder: Path) -> dict[Path, str]:
    """Return the files that Ansible reads variables of."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in KINDS and path.is_file())
    return {path: path.read_text(encoding="utf-8") for path in found}


def owner(name: str) -> str:
    """Return the role that a variable is named after, the longest that fits: slurm_compute before slurm."""
    plain = name.lstrip("_")
    return next((role for role in NAMES if plain == role or plain.startswith(f"{role}_")), "")


def foreign(text: str, role: str, own: t.Container[str]) -> set[str]:
    """Return the private names of other roles in a text."""
    return {name for name in PRIVATE.findall(text) if owner(name) not in ("", role) and name not in own}


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_a_role_reads_and_sets_no_private_variable_of_another(role: Path) -> None:
    found = {
        f"{path.relative_to(role)}: {name}"
        for path, text in texts(role).items()
        for name in foreign(text, role.name, ())
    }
    assert not found, "give it a public name, and list it under Result in the README of the role that sets it"


def variables(role: Path) -> set[str]:
    path = role / "vars/main.yml"
    return set(yaml.safe_load(path.read_text()) or {}) if path.exists() else set()


def playbooks() -> dict[Path, str]:
    lab = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "lab").glob("*.yml"))}
    return {**texts(ROOT / "playbooks"), **texts(ROOT / "site_template"), **texts(ROOT / "inventories"), **lab}


def test_no_playbook_or_inventory_reads_a_private_variable_of_a_role() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in playbooks().items()
        for name in foreign(text, "", set(re.findall(r"^\s*(__\w+):", text, re.MULTILINE)))
    }
    assert not found


def outputs(role: Path) -> set[str]:
    """Return the public names that a role sets and that are no input of it."""
    names: set[str] = set()
    for path in sorted((role / "tasks").glob("*.yml")):
        names |= set(REGISTERED.findall(path.read_text()))
        for task in flat(yaml.safe_load(path.read_text()) or []):
            names |= {name for key in ("ansible.builtin.set_fact", "set_fact") for name in task.get(key) or {}}
    return {name for name in names | variables(role) if not name.startswith("_") and name != "cacheable"}


def flat(tasks: t.Iterable[dict[str, t.Any]]) -> t.Iterator[dict[str, t.Any]]:
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from flat(task.get(part) or [])


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_what_others_read_of_a_role_is_in_its_readme(role: Path) -> None:
    readme = (role / "README.md").read_text()
    elsewhere = [text for other in ROLES if other != role for text in texts(other).values()] + [*playbooks().values()]
    read = {name for name in outputs(role) if any(re.search(rf"(?<![./]){name}\b", text) for text in elsewhere)}
    assert {name for name in read if f"`{name}`" not in readme} == set()


def calls(value: t.Any) -> t.Iterator[tuple[str, str]]:
    """Return role and entry point of each call in a playbook or task file."""
    if isinstance(value, list):
        for item in value:
            yield from calls(item)
    elif isinstance(value, dict):
        if "tasks_from" in value and ("name" in value or "role" in value):
            yield str(value.get("name", value.get("role"))), str(value["tasks_from"])
        for item in value.values():
            yield from calls(item)


CALLS = sorted(
    (str(path.relative_to(ROOT)), role, entry)
    for path, text in [*playbooks().items(), *((p, x) for role in ROLES for p, x in texts(role / "tasks").items())]
    if path.suffix == ".yml" and "tasks_from" in text
    for role, entry in calls(yaml.safe_load(text))
)


def test_there_are_calls() -> None:
    assert {entry for dummy, dummy, entry in CALLS} >= {"packages", "config", "reconcile", "plan"}


@pytest.mark.parametrize(("where", "role", "entry"), CALLS)
def test_the_inputs_of_an_entry_point_are_validated(where: str, role: str, entry: str) -> None:
    """Ansible finds the specification by the very text of tasks_from; config.yml would be an entry point of no name."""
    assert not entry.endswith(SUFFIXES), where
    (called,) = (path for path in ROLES if path.name == role.removeprefix("hpcai.gpu_cluster."))
    assert (called / f"tasks/{entry}.yml").is_file()
    assert entry in yaml.safe_load((called / "meta/argument_specs.yml").read_text())["argument_specs"], where


def test_readers_are_shown_no_entry_point_with_a_suffix() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/*/README.md"), *ROOT.glob("*/*/*/README.md")]
    shown = {str(page.relative_to(ROOT)) for page in pages if re.search(r"tasks_from: \w+\.ya?ml", page.read_text())}
    assert not shown
