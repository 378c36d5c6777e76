# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.google_infra import google_infra_plan
from ansible_collections.hpcai.gpu_cluster.plugins.modules import google_resource

INPUTS: dict[str, t.Any] = {
    "project": "p1",
    "cluster": "demo",
    "zone": "us-central1-b",
    "state": "present",
    "address_range": "10.20.0.0/20",
    "allowed_sources": [],
    "public_address": False,
    "ssh_key": "",
    "login_count": 2,
    "image_family": "debian-12",
    "image_project": "debian-cloud",
    "controller": {"machine_type": "n1-standard-2"},
    "login": {"machine_type": "n1-standard-4", "tags": ["own"]},
    "controller_roles": ["roles/compute.instanceAdmin.v1"],
    "node_roles": ["roles/logging.logWriter"],
}


def named(**more: t.Any) -> list[str]:
    return [entry["name"] for entry in google_infra_plan({**INPUTS, **more})["resources"]]


def test_every_resource_comes_after_what_it_needs() -> None:
    planned = google_infra_plan(INPUTS)["resources"]
    names = [entry["name"] for entry in planned]
    assert names[:3] == ["demo-net", "demo-subnet", "demo-internal"]
    assert names.index("demo-router") < names.index("demo-nat")
    bindings = [entry for entry in planned if entry["kind"] == "role_binding"]
    assert bindings == planned[-2:]
    assert bindings[0]["name"] == "serviceAccount:demo-control@p1.iam.gserviceaccount.com"
    assert bindings[1]["properties"] == {"role": "roles/logging.logWriter"}


def test_ssh_is_open_to_those_who_are_named_and_removed_in_any_case() -> None:
    assert "demo-ssh" not in named()
    assert "demo-ssh" in named(allowed_sources=["203.0.113.7/32"])
    assert "demo-ssh" in named(state="absent")


def test_machines_are_what_the_inputs_say_of_them() -> None:
    controller, login = google_infra_plan({**INPUTS, "ssh_key": "me:key"})["groups"]
    assert (controller["hosts"], login["hosts"]) == (["demo-controller"], ["demo-login1", "demo-login2"])
    assert controller["machine"]["service_account"].startswith("demo-control@")
    assert controller["machine"]["scopes"] == ["cloud-platform"] and "scopes" not in login["machine"]
    assert controller["machine"]["tags"] == ["demo"] and login["machine"]["tags"] == ["own"]
    assert login["machine"]["metadata"] == {"ssh-keys": "me:key"}


def test_the_module_knows_each_kind() -> None:
    kinds = {entry["kind"] for entry in google_infra_plan({**INPUTS, "state": "absent"})["resources"]}
    options = yaml.safe_load(google_resource.DOCUMENTATION)["options"]
    assert kinds <= set(options["kind"]["choices"])


@pytest.mark.parametrize("inputs", [[], "demo", {"cluster": "demo"}])
def test_other_input_is_refused(inputs: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="google_infra_plan"):
        google_infra_plan(inputs)
