# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is somebody else's: groups, resources with tags that a policy copied, and the day that a person chose."""

from __future__ import annotations

import datetime
import re
import typing as t

from test_azure_infra import PLACE, ROOT, Role, role, running, warm

__all__ = ["role", "running", "warm"]
OURS = {"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "c1"}
RG = "resourceGroups/c1-rg"
NSG = f"{RG}/providers/Microsoft.Network/networkSecurityGroups"
# The part of the role that comes to the tags of the group, which is made or not a minute before the rest.
GROUP_PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: hpcai.gpu_cluster.azure_infra, tasks_from: "{{ item }}"}
      loop: [look, group]
"""

# The same with the network, without the machine.
NETWORK_PLAY = GROUP_PLAY.replace("[look, group]", "[look, group, network]")

RUNBOOK_PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - hpcai.gpu_cluster.azure_resource:
        id: "{{ account }}"
        api_version: "2023-11-01"
        body: {location: southcentralus, properties: {sku: {name: Basic}}}
    - hpcai.gpu_cluster.azure_runbook:
        {account: "{{ account }}", name: expire, location: southcentralus, content: "Write-Output 1\\n", tags: {a: b}}
"""

GROUP_TASK = re.compile(r"Create the resource group\].*\n(\w+): \[localhost\]")


def group(role: Role, name: str, **tags: str) -> None:
    role.azure.arm("PUT", f"resourceGroups/{name}", "2021-04-01", {**PLACE, "tags": tags})


def play(role: Role, name: str) -> None:
    (role.directory / "play.yml").write_text((ROOT / "playbooks" / name).read_text())


def day(days: int) -> str:
    return f"{datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days):%Y-%m-%dT%H:%M:%SZ}"


def test_a_group_of_somebody_else_is_left_alone(role: Role) -> None:
    """With our tags it would go with the cluster."""
    group(role, "c1-rg", owner="it")
    failed = role(fails=True)
    assert "Resource group c1-rg was there before" in failed.told
    assert len(role.there()) == 1


def test_only_a_group_of_its_own_is_deleted_with_a_schedule(role: Role) -> None:
    group(role, "c1-rg", **OURS, **{"hpcai-resource": "resourceGroups/c1-rg"})
    group(role, "shared", owner="it", **OURS)  # the tags of the subscription, copied by a policy
    before = role.there()
    play(role, "expire.yml")
    shared = {"azure_teardown_cluster": "c1", "azure_teardown_schedule_group": "shared"}
    role(azure_teardown_expiry="absent", **shared)
    assert role.there() == before
    refused = role(fails=True, azure_teardown_days=2, azure_teardown_schedule=True, **shared)
    assert "shared was not made for the expiry of c1" in refused.told
    assert role.there() == before


def test_tags_that_a_policy_copied_do_not_make_it_ours(role: Role) -> None:
    """Else it would go with the group, on a list that has its name and nothing to make anyone look."""
    group(role, "c1-rg", **OURS, **{"hpcai-resource": "resourceGroups/c1-rg"})
    role.azure.control("settings", {"inherited_tags": [*OURS, "hpcai-resource"]})
    ours = {**PLACE, "tags": {**OURS, "hpcai-resource": "c1-rg/networkSecurityGroups/c1-nsg"}}
    role.azure.done("PUT", f"{NSG}/c1-nsg", "2024-07-01", ours)
    theirs = role.azure.done("PUT", f"{NSG}/theirs", "2024-07-01", PLACE).body
    assert theirs["tags"] == {**OURS, "hpcai-resource": "resourceGroups/c1-rg"}
    play(role, "destroy.yml")
    before = role.there()
    asked: dict[str, t.Any] = {"azure_teardown_cluster": "c1", "confirm": "c1", "azure_teardown_report": ""}
    refused = role(fails=True, **asked).told
    assert f"{theirs['id']} (Microsoft.Network/networkSecurityGroups) is in a group that would be deleted" in refused
    assert "as if a policy had copied them" in refused and "c1-nsg (" not in refused
    assert role.there() == before
    role(azure_teardown_also=[theirs["id"]], **asked)
    assert role.there() == set()


def test_a_rule_that_an_administrator_added_stays(role: Role) -> None:
    """It was removed by the next run; what the role itself does not want any more goes still."""

    def rules() -> dict[str, int]:
        shown = role.azure.arm("GET", f"{NSG}/c1-server-nsg", "2024-07-01").body["properties"]["securityRules"]
        return {one["name"]: one["properties"]["priority"] for one in shown}

    (role.directory / "play.yml").write_text(NETWORK_PLAY)
    quick = {"azure_infra_preflight": False}
    role(**quick)
    assert rules() == {"cyclecloud-from-nodes": 100, "ssh": 110, "https": 120, "closed": 4096}
    theirs = {"direction": "Inbound", "access": "Allow", "protocol": "Tcp", "priority": 105, "sourcePortRange": "*"}
    theirs.update(destinationPortRange="443", sourceAddressPrefix="10.1.0.0/16", destinationAddressPrefix="*")
    role.azure.done("PUT", f"{NSG}/c1-server-nsg/securityRules/vpn", "2024-07-01", {"properties": theirs})
    again = role(**quick)
    assert (again.changed, rules()["vpn"]) == (0, 105), again.output
    assert "rule vpn of c1-server-nsg (priority 105) lets 10.1.0.0/16 in, port 443, Tcp" in again.told
    closed = role(azure_infra_allowed_sources=[], **quick)
    assert closed.changed and rules() == {"cyclecloud-from-nodes": 100, "vpn": 105, "closed": 4096}
    assert role(azure_infra_allowed_sources=[], **quick).changed == 0


def test_a_runbook_that_somebody_replaced_is_published_again_and_a_draft_stays(role: Role) -> None:
    """It deletes unattended, and its description, which was all that was compared, does not say what it does."""
    (role.directory / "play.yml").write_text(RUNBOOK_PLAY)
    account = f"{role.azure.subscription}/{RG}/providers/Microsoft.Automation/automationAccounts/a"
    group(role, "c1-rg", **OURS)
    assert (role(account=account).changed, role(account=account).changed) == (2, 0)
    book, old = f"{account}/runbooks/expire", "2023-11-01"
    text = {"Authorization": f"Bearer {role.azure.token}", "Content_Type": "text/powershell"}
    assert role.azure.raw("PUT", f"{book}/draft/content?api-version={old}", b"Get-Date", **text).status == 202
    kept = role(account=account)
    assert kept.changed == 0 and "it has a draft that somebody did not publish" in kept.told
    role.azure.done("POST", f"{book.removeprefix(role.azure.subscription).lstrip('/')}/publish", old)
    assert role("--check", account=account).changed == 1
    assert (role(account=account).changed, role(account=account).changed) == (1, 0)
    shown = role.azure.arm("GET", f"{book.removeprefix(role.azure.subscription).lstrip('/')}/content", old)
    assert shown.body == b"Write-Output 1\n"


def test_a_day_that_a_person_chose_is_not_undone(role: Role) -> None:
    def tags() -> dict[str, str]:
        found = role.azure.arm("GET", RG, "2021-04-01").body["tags"]
        return {name: value for name, value in found.items() if name.startswith("expires-on")}

    (role.directory / "play.yml").write_text(GROUP_PLAY)
    first, later, last = day(3), day(9), day(5)
    role(azure_infra_expires_on=first, azure_infra_preflight=False)
    assert tags() == {"expires-on": first, "expires-on-by": f"provision.yml {first}"}
    play(role, "expire.yml")
    role(azure_teardown_cluster="c1", azure_teardown_expires_on=later)
    assert role(azure_teardown_cluster="c1", azure_teardown_expires_on=later).changed == 0
    (role.directory / "play.yml").write_text(GROUP_PLAY)
    for options in ([], ["--check"]):
        kept = role(*options, azure_infra_expires_on=first, azure_infra_preflight=False)
        assert f"expires-on stays {later}, which expire.yml chose" in kept.told
        assert GROUP_TASK.search(kept.output)[1] == "ok", kept.output
    assert tags() == {"expires-on": later, "expires-on-by": f"expire.yml {later}"}
    told = {"azure_infra_expires_on": last, "azure_infra_expires_on_again": True, "azure_infra_preflight": False}
    for options in (["--check"], []):
        assert GROUP_TASK.search(role(*options, **told).output)[1] == "changed"
    assert tags() == {"expires-on": last, "expires-on-by": f"provision.yml {last}"}
