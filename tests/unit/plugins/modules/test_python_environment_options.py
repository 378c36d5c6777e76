# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.environment import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.modules import python_environment, python_environment_proof
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import documented


def test_options_are_documented_as_they_are() -> None:
    found = {
        name: {k: v for k, v in one.items() if k != "suboptions"}
        for name, one in documented(python_environment).items()
    }
    assert found == SPEC


def test_what_a_proof_takes_is_documented_as_it_is() -> None:
    def plain(options: t.Any) -> t.Any:
        return {
            name: {
                "options" if key == "suboptions" else key: plain(value) if key == "suboptions" else value
                for key, value in one.items()
                if key != "description"
            }
            for name, one in options.items()
        }

    assert plain(yaml.safe_load(python_environment_proof.DOCUMENTATION)["options"]) == python_environment_proof.SPEC


def test_drivers_that_are_none_are_refused_and_end_in_no_traceback() -> None:
    """A list of versions did, on a machine with an H200."""
    validator = ArgumentSpecValidator(python_environment_proof.SPEC)
    given = {"path": "/opt/torch", "want": {"torch": "2.11.0", "drivers": ["580.159.04"]}}
    assert "dictionary requested" in validator.validate(given).error_messages[0]
