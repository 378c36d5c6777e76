# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and functions that are named in strings, where no import would say that they have moved."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import main, registry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import bundle
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _node_program, _zipapp

ROOT = Path(__file__).parents[2]
LOOKUP = re.compile(r"lookup\('hpcai\.gpu_cluster\.node_program', '([\w.]+)'(.*?)\)", re.DOTALL)
PROGRAMS = sorted(
    (str(path.relative_to(ROOT)), module, "".join(re.findall(r"function='(\w+)'", options)) or "main")
    for path in ROOT.glob("roles/*/vars/*.yml")
    for module, options in LOOKUP.findall(path.read_text(encoding="utf-8"))
    if not module.endswith(".")  # a provider's name follows: the tests of slurm_power take each of them
)


@pytest.mark.parametrize("check", sorted(registry.CHECKS))
def test_a_check_of_the_agent_is_where_its_table_says(check: str) -> None:
    module, dummy, function = registry.CHECKS[check].function.partition(":")
    assert callable(getattr(importlib.import_module(f"{registry.HOME}.{module}"), function))


@pytest.mark.parametrize("command", sorted(main.SUBCOMMANDS))
def test_a_subcommand_of_the_agent_is_where_its_table_says(command: str) -> None:
    module, function = main.SUBCOMMANDS[command]
    assert callable(getattr(importlib.import_module(f"{main.HOME}.{module}"), function))


@pytest.mark.parametrize(("role", "module", "function"), PROGRAMS)
def test_a_program_of_a_role_is_where_the_role_says(role: str, module: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(f"{_node_program.HOME}.{module}"), function))


def test_there_are_programs_of_roles() -> None:
    assert len(PROGRAMS) >= 3


@pytest.mark.parametrize("package", [*_zipapp.PACKAGES, _zipapp.ENTRY])
def test_what_the_agent_is_packed_of_exists(package: str) -> None:
    assert importlib.import_module(f"{_zipapp.HOME}.{package}")


@pytest.mark.parametrize("path", bundle.ALWAYS)
def test_what_a_node_bundle_is_packed_of_exists(path: str) -> None:
    assert (ROOT / path).exists()
