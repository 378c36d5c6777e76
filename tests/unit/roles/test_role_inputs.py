# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role's defaults and argument specification say the same thing."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import role_needs
import yaml
from role_readmes import ROLES


def load(path: Path) -> dict[str, t.Any]:
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Path:
    return request.param


def options(role: Path) -> dict[str, t.Any]:
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    return {name: option for spec in specs.values() for name, option in (spec.get("options") or {}).items()}


def test_every_input_has_an_entry_in_the_defaults(role: Path) -> None:
    assert set(load(role / "defaults/main.yml")) == set(options(role)) | set(role_needs.cluster_names(role))


def test_an_input_that_is_not_given_says_what_it_is_for(role: Path) -> None:
    path = role / "defaults/main.yml"
    text = path.read_text() if path.exists() else ""
    assert text == role_needs.render(role), "make docs draws it"
    needed = [name for options in role_needs.required(role) for name in options] + list(role_needs.cluster_names(role))
    for name in needed:
        value = load(path)[name]
        assert value.startswith('{{ undef(hint="Role ') and name in value, name


# Ansible evaluates the whole specification, also the defaults of inputs that were given.
def test_documented_defaults_stand_on_nothing_that_has_to_be_given(role: Path) -> None:
    needed = {name for options in role_needs.required(role) for name in options} | set(role_needs.CLUSTER)
    for name, option in options(role).items():
        expressions = re.findall(r"{{.*?}}", str(option.get("default", "")))
        used = {word for text in expressions for word in re.findall(r"\b\w+\b(?! *\| *default)", text)}
        assert not used & needed, name


def test_documented_defaults_are_the_real_ones(role: Path) -> None:
    defaults = load(role / "defaults/main.yml")
    for name, option in options(role).items():
        if "default" in option:
            assert option["default"] == defaults[name], name


def test_inputs_carry_the_role_s_name_and_are_described(role: Path) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"{role.name}_"), name
        assert option.get("description"), name
        assert option.get("type"), name


# antsibull-docs draws no page for a role that has an entry point without one.
def test_each_entry_point_is_described(role: Path) -> None:
    for name, spec in load(role / "meta/argument_specs.yml")["argument_specs"].items():
        assert spec.get("short_description") and spec.get("description"), name


def test_role_has_a_page_and_metadata(role: Path) -> None:
    assert (role / "README.md").read_text().startswith("# ")
    assert load(role / "meta/main.yml")["galaxy_info"]["license"] == "GPL-3.0-or-later"
