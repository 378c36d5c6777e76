# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role's README has one skeleton, the inputs of the argument specification, and an example with real inputs."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

import pytest
import role_readmes
import yaml

ROLES = role_readmes.ROLES
SECTIONS = ["Example", "Inputs", "What it leaves alone"]


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Path:
    return request.param


def keys(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield key
            yield from keys(below)
    elif isinstance(value, list):
        for below in value:
            yield from keys(below)


def owner(name: str) -> str | None:
    """The role that a variable belongs to, by the longest name that it begins with."""
    names = [path.name for path in ROLES if name.startswith(f"{path.name}_")]
    return max(names, key=len, default=None)


@functools.cache
def inputs() -> set[str]:
    """The inputs of all roles: slurm_controller_hosts is one of the role slurm."""
    specs = [role_readmes.load(path / "meta/argument_specs.yml")["argument_specs"] for path in ROLES]
    return {name for one in specs for spec in one.values() for name in spec.get("options") or {}}


def test_the_table_of_inputs_is_what_the_specification_says(role: Path) -> None:
    drawn = role_readmes.render(role)
    assert drawn == (role / "README.md").read_text(encoding="utf-8"), f"{role}/README.md: run make docs"


def test_the_page_has_the_sections_of_all_pages(role: Path) -> None:
    page = re.sub(r"```.*?```", "", (role / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [title for title in found if title in SECTIONS] == SECTIONS


def test_the_example_is_a_play_with_inputs_that_exist(role: Path) -> None:
    page = (role / "README.md").read_text(encoding="utf-8")
    section = page.partition("\n## Example\n")[2].partition("\n## ")[0]
    block = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert block, "the section Example has no block of YAML"
    plays = yaml.safe_load(block[1])
    assert all("hosts" in play or "ansible.builtin.import_playbook" in play for play in plays)
    assert {name for name in keys(plays) if owner(name) == role.name} <= inputs()


def test_markup_becomes_markdown() -> None:
    text = r"Empty (V(\(\))) leaves C(a | b) and O(x=1) alone; see L(page,https://x.y/z), P(a.b.c#filter), I(not) U(https://x.y)."
    shown = r"Empty (`()`) leaves `a \| b` and `x=1` alone; see [page](https://x.y/z), `a.b.c`, *not* <https://x.y>."
    assert role_readmes.markdown(text) == shown


@pytest.mark.parametrize(
    ("option", "otherwise", "cell"),
    [
        ({"required": True}, None, "required"),
        ({}, None, "none"),
        ({"default": ""}, None, '`""`'),
        ({"default": "yes"}, None, '`"yes"`'),
        ({"default": "0755"}, None, '`"0755"`'),
        ({"default": True}, None, "`true`"),
        ({"default": 0.05}, None, "`0.05`"),
        ({"default": []}, None, "`[]`"),
        ({"default": [{"name": "batch"}]}, None, "`[{name: batch}]`"),
        ({"default": "{{ cluster_shared_dir }}/x"}, None, "`{{ cluster_shared_dir }}/x`"),
        ({}, "{{ cluster_name }}", "`{{ cluster_name }}`"),
        ({}, "{{ a ~ b }}", "[computed](defaults/main.yml)"),
        ({"default": ["/", "{{ a }}"]}, None, "[computed](defaults/main.yml)"),
        ({"default": "^openib: x"}, None, '`"^openib: x"`'),
        ({}, "plain", "`plain`"),
        ({"default": "x" * 200}, None, "[see defaults](defaults/main.yml)"),
    ],
)
def test_defaults_read_as_yaml(option: dict[str, t.Any], otherwise: t.Any, cell: str) -> None:
    assert role_readmes.default(option, otherwise) == cell


def test_suboptions_and_entry_points_have_rows_of_their_own() -> None:
    name = {"type": "str", "required": True, "description": "Name."}
    first = {
        "a": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "description": ["One.", "Two."],
            "options": {"n": name},
        }
    }
    specs = {
        "main": {"short_description": "Does", "options": first},
        "more": {
            "short_description": "Does more",
            "options": {**first, "b": {"type": "str", "description": "B.", "choices": ["x"]}},
        },
    }
    lines = [line for line in role_readmes.entry_points(specs, {"b": "x"}, {}) if line]
    head = ["| Name | Type | Default | Meaning |", "| --- | --- | --- | --- |"]
    assert lines == [
        *head,
        "| `a` | list of dict | `[]` | One. Two. |",
        "| `a[].n` | str | required | Name. |",
        "`tasks_from: more`: Does more. It takes the inputs above, and:",
        *head,
        "| `b` | str | `x` | B. One of `x`. |",
    ]


def test_an_input_that_is_left_to_its_module_shows_the_module_s_default(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/main.yml").write_text(
        "- name: Tune\n  when: true\n  block:\n"
        "    - hpcai.gpu_cluster.node_tuning:\n"
        '        state: "{{ tune_state | default(omit) }}"\n'
        '        delay: "{{ tune_delay | int }}"\n'
    )
    assert {(entry.name, entry.is_left) for entry in role_readmes.handed(tmp_path)} == {
        ("tune_state", True),
        ("tune_delay", False),
    }
    left = role_readmes.left_to_modules(tmp_path)
    option = {"type": "str", "description": "Whether."}
    (row,) = role_readmes.rows({"tune_state": option}, {}, left)
    assert row == "| `tune_state` | str | `present` | Whether. |"
