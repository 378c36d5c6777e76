# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that deletes unattended: what it asks for, in which order, and what stops it. It runs for real in
tests/integration/test_azure_expiry.py."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.azure_teardown import azure_teardown_runbook
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import expire, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import TeardownError

BASE = "/subscriptions/s"
HOME = f"{BASE}/resourceGroups/c1-expiry-rg"
SETTINGS = {"cluster": "c1", "nodes_cluster": "c1", "subscription": "s", "home": HOME}
NOW = datetime.datetime(2026, 12, 1, tzinfo=datetime.timezone.utc)


def group(name: str, expires: str = "2026-11-30T00:00:00Z", state: str = "Succeeded") -> dict[str, t.Any]:
    tags = {"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "c1", "hpcai-resource": f"resourceGroups/{name}"}
    said = {"id": f"{BASE}/resourceGroups/{name}", "name": name, "type": "Microsoft.Resources/resourceGroups"}
    return {**said, "tags": {**tags, "expires-on": expires}, "properties": {"provisioningState": state}}


class FakeArm:
    """Azure as a Contributor of the groups sees it; ``kept`` are groups that it gives up deleting."""

    subscription = "s"

    def __init__(
        self, *groups: dict[str, t.Any], kept: t.Sequence[str] = (), resources: t.Sequence[t.Any] = ()
    ) -> None:
        self.groups = {one["id"]: one for one in groups}
        self.kept, self.resources, self.asked = kept, resources, list[str]()

    def pause(self, seconds: float) -> None:
        for name, one in list(self.groups.items()):
            if one["properties"]["provisioningState"] == "Deleting":
                if one["name"] in self.kept:
                    one["properties"]["provisioningState"] = "Succeeded"
                else:
                    del self.groups[name]

    def get(self, path: str, version: str) -> dict[str, t.Any] | None:
        return {"properties": {"principalId": "p"}}

    def items(self, path: str, version: str, **query: str) -> list[dict[str, t.Any]]:
        if path.endswith("/resourcegroups"):
            return [dict(one) for one in self.groups.values()]
        if path.startswith(f"{BASE}/providers/Microsoft.Authorization"):
            raise AzureError(f"GET {path} was answered 403: AuthorizationFailed")
        return list(self.resources) if path.endswith("/c1-rg/resources") else []

    def delete(self, path: str, version: str) -> bool:
        self.asked.append(path.rsplit("/", 1)[-1])
        self.groups[path]["properties"]["provisioningState"] = "Deleting"
        return True


def run(arm: FakeArm) -> list[str]:
    told: list[str] = []
    expire.Expiry(t.cast(t.Any, arm), teardown.TeardownRequest("c1", "c1"), HOME, told.append).run(NOW)
    return told


def test_groups_go_first_what_may_not_be_read_is_told_and_home_goes_last() -> None:
    own = {"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "c1", "hpcai-resource": "c1-rg/userAssignedIdentities/i"}
    kind = "Microsoft.ManagedIdentity/userAssignedIdentities"
    identity = {"id": f"{BASE}/resourceGroups/c1-rg/providers/{kind}/i", "type": kind, "tags": own}
    arm = FakeArm(group("c1-expiry-rg"), group("c1-rg"), group("c1-more"), resources=[identity])
    told = run(arm)
    assert arm.asked == ["c1-more", "c1-rg", "c1-expiry-rg"]
    assert any("Role assignments of p are not looked for, destroy.yml deletes them" in line for line in told)


@pytest.mark.parametrize("expires", ["2026-12-02T00:00:00Z", ""])
def test_one_group_that_is_not_due_keeps_all(expires: str) -> None:
    arm = FakeArm(group("c1-expiry-rg"), group("c1-rg", expires))
    assert "c1 stays: c1-rg" in run(arm)[-1] and arm.asked == []


def test_a_day_that_cannot_be_read_deletes_nothing() -> None:
    arm = FakeArm(group("c1-rg", "soon"))
    with pytest.raises(TeardownError, match="'soon' is no time"):
        run(arm)
    assert arm.asked == []


def test_what_somebody_else_made_keeps_all() -> None:
    theirs = {"id": f"{BASE}/resourceGroups/c1-rg/providers/Microsoft.Web/sites/x", "type": "Microsoft.Web/sites"}
    arm = FakeArm(group("c1-rg"), group("c1-more"), resources=[theirs])
    with pytest.raises(TeardownError, match=r"Nothing was deleted\. .*sites/x"):
        run(arm)
    assert arm.asked == []


def test_a_group_that_azure_keeps_fails_the_job_and_home_stays() -> None:
    arm = FakeArm(group("c1-expiry-rg"), group("c1-rg"), group("c1-more"), kept=["c1-rg"])
    with pytest.raises(TeardownError, match="c1-rg is still there, Succeeded"):
        run(arm)
    assert arm.asked == ["c1-more", "c1-rg"] and list(arm.groups) == [HOME, f"{BASE}/resourceGroups/c1-rg"]


def test_the_script_stands_alone(tmp_path: Path) -> None:
    """No collection, no site packages and no directory of ours are there, and Azure's libraries may be of any age."""
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure/__init__.py").write_text("raise RuntimeError('a library of Azure was loaded')")
    script = azure_teardown_runbook(SETTINGS)
    environ = {"PATH": os.defpath, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-"], input=script, cwd=tmp_path, env=environ, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("IDENTITY_ENDPOINT is not set: the Automation account has no identity, or this is no job")
    ), done.stderr


def test_the_script_asks_the_resource_manager_of_its_cloud() -> None:
    assert '"manager": "https://management.azure.com"' in azure_teardown_runbook(SETTINGS)
    assert '"manager": "https://management.usgovcloudapi.net"' in azure_teardown_runbook(
        {**SETTINGS, "cloud": "AzureUSGovernment"}
    )
    for wrong in ({**SETTINGS, "cloud": "https://stack.example.com"}, {**SETTINGS, "home": ""}, []):
        with pytest.raises(AnsibleFilterError):
            azure_teardown_runbook(wrong)
