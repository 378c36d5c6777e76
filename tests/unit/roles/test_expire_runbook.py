# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook that deletes unattended, as text: no PowerShell runs here. Its rule is that of azure.ownership."""

from __future__ import annotations

import re
from pathlib import Path

SCRIPT = (Path(__file__).parents[3] / "roles/azure_teardown/files/expire.ps1").read_text(encoding="utf-8")
DELETING = SCRIPT.index("Remove-AzResourceGroup")


def test_a_missing_tag_proves_nothing() -> None:
    """`return -not $Group.Tags['hpcai-resource']` took two tags, which policies copy, for enough."""
    assert not re.search(r"-not \$\w+\.Tags\['hpcai-resource'\]", SCRIPT)
    assert "-and $Tags['hpcai-resource'] -eq $Name" in SCRIPT


def test_groups_and_resources_prove_themselves_by_their_own_names() -> None:
    assert 'Test-Name $_.Tags "resourceGroups/$($_.ResourceGroupName)"' in SCRIPT
    assert (
        "\"$($group.ResourceGroupName)/$(($_.ResourceType -split '/')[-1])/$(($_.ResourceId -split '/')[-1])\""
        in SCRIPT
    )


def test_what_manages_a_resource_has_to_be_known_itself() -> None:
    """A disk is managed by a machine, and the machine may be anybody's."""
    managed = re.findall(r".*ManagedBy.*", SCRIPT)
    assert len(managed) == 1 and "$_.ManagedBy -in $known" in managed[0]


def test_only_groups_that_proved_themselves_are_deleted_and_after_everything_was_looked_at() -> None:
    assert re.search(r"foreach \(\$group in \$groups \| Sort-Object.*\n.*\n +Remove-AzResourceGroup", SCRIPT)
    last_refusal = SCRIPT.rindex("throw ")
    assert last_refusal < SCRIPT.index("Remove-AzRoleAssignment") < DELETING
    assert "azure_teardown_also" in SCRIPT[last_refusal:DELETING]
