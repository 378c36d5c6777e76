# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""To which test a record belongs; apart from what measures, as each node imports it. Pure, private, stdlib only."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json


def marked(one: Json, test: Json, run_name: str) -> Json:
    """Return a record that tells which test it belongs to."""
    place = {"test": test["id"], "stage": test["stage"], "round": test["round"]}
    group = {"group": list(test["nodes"])} if len(test["nodes"]) > 1 else {}
    scope = {**(one.get("scope") or {}), **group}
    return {**one, "run": run_name, "scope": scope, "context": {**(one.get("context") or {}), **place}}
