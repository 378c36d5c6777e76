# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.environment import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.modules import python_environment
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import documented


def test_options_are_documented_as_they_are() -> None:
    found = {
        name: {k: v for k, v in one.items() if k != "suboptions"}
        for name, one in documented(python_environment).items()
    }
    assert found == SPEC
