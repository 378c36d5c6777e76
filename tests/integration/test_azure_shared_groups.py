# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resource groups of somebody else: never marked as the cluster's, never deleted with it."""

from __future__ import annotations

from test_azure_infra import PLACE, ROOT, Role, role, running

__all__ = ["role", "running"]
OURS = {"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "c1"}


def group(role: Role, name: str, **tags: str) -> None:
    role.azure.arm("PUT", f"resourceGroups/{name}", "2021-04-01", {**PLACE, "tags": tags})


def test_a_group_of_somebody_else_is_left_alone(role: Role) -> None:
    """With our tags it would go with the cluster."""
    group(role, "c1-rg", owner="it")
    failed = role(fails=True)
    assert "Resource group c1-rg was there before" in failed.told
    assert len(role.there()) == 1


def test_only_a_group_of_its_own_is_deleted_with_a_schedule(role: Role) -> None:
    group(role, "c1-rg", **OURS)
    group(role, "shared", owner="it")
    before = role.there()
    (role.directory / "play.yml").write_text((ROOT / "playbooks/expire.yml").read_text())
    shared = {"azure_teardown_cluster": "c1", "azure_teardown_schedule_group": "shared"}
    role(azure_teardown_expiry="absent", **shared)
    refused = role(fails=True, azure_teardown_days=2, azure_teardown_schedule=True, **shared)
    assert "shared was not made for the expiry of c1" in refused.told
    assert role.there() == before
