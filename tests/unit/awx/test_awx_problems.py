# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX would take and ignore is told before it is sent, and the template has none of it."""

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
from awx_problems import awx_problems

ROOT = Path(__file__).resolve().parents[3]
TEMPLATE = ROOT / "site_template"

QUESTION = {"question_name": "q", "variable": "v", "type": "text", "required": True}
GOOD: dict[str, list[dict[str, t.Any]]] = {
    "aap_organizations": [{"name": "o", "galaxy_credentials": ["g"]}],
    "controller_credential_types": [
        {"name": "k", "kind": "cloud", "inputs": {"fields": [{"id": "key", "label": "Key"}], "required": ["key"]}}
    ],
    "controller_credentials": [
        {"name": "g", "credential_type": "Ansible Galaxy/Automation Hub API Token", "inputs": {"url": "https://g/"}},
        {"name": "c", "credential_type": "k", "inputs": {"key": "secret"}},
    ],
    "controller_notifications": [
        {"name": "n", "notification_type": "slack", "notification_configuration": {"channels": ["a"], "token": "x"}}
    ],
    "controller_projects": [
        {"name": "p", "organization": "o", "scm_type": "git", "scm_url": "https://git.example.org/o/p.git"}
    ],
    "controller_inventory_sources": [{"name": "s", "source": "scm", "source_path": "inventories/azure/hosts"}],
    "controller_templates": [
        {
            "name": "t",
            "playbook": "playbooks/certify.yml",
            "credentials": ["c"],
            "survey_enabled": True,
            "survey_spec": {"name": "", "description": "", "spec": [QUESTION]},
        }
    ],
    "controller_workflows": [
        {
            "name": "w",
            "simplified_workflow_nodes": [
                {"identifier": "a", "approval_node": {"name": "ap"}, "success_nodes": ["b"]},
                {"identifier": "b", "unified_job_template": "t", "extra_data": {"v": "x"}},
            ],
        }
    ],
    "controller_schedules": [{"name": "d", "unified_job_template": "t", "extra_data": {"v": "x"}}],
}


def problems(kind: str = "", change: t.Callable[[dict[str, t.Any]], t.Any] | None = None) -> str:
    objects = copy.deepcopy(GOOD)
    if change:
        change(objects[kind][0])
    return "\n".join(awx_problems(objects, str(TEMPLATE)))


def ask(**change: t.Any) -> t.Callable[[dict[str, t.Any]], t.Any]:
    """Change the question of the template."""
    return lambda template: template["survey_spec"]["spec"][0].update(change)


def node(number: int, **change: t.Any) -> t.Callable[[dict[str, t.Any]], t.Any]:
    return lambda flow: flow["simplified_workflow_nodes"][number].update(change)


def test_nothing_is_said_of_what_is_right() -> None:
    assert problems() == ""


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_a_field_that_awx_does_not_have(kind: str) -> None:
    assert "AWX ignores the field ask_limits_on_launch." in problems(
        kind, lambda one: one.update(ask_limits_on_launch=True)
    )


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        (
            "aap_organizations",
            lambda one: one.pop("galaxy_credentials"),
            "AWX skips collections/requirements.yml of p.",
        ),
        ("aap_organizations", lambda one: one.update(galaxy_credentials=["c"]), "it has no Galaxy credential"),
        ("controller_credentials", lambda one: one.update(inputs={}), "the input url is empty"),
        ("controller_credential_types", lambda one: one["inputs"]["required"].append("x"), "required names x"),
        ("controller_notifications", lambda one: one["notification_configuration"].update(c=1), "has c, which slack"),
        ("controller_projects", lambda one: one.update(organization="q"), "none of aap_organizations"),
        ("controller_projects", lambda one: one.update(scm_url="file:///x"), "no address that AWX can fetch"),
        ("controller_projects", lambda one: one.update(scm_url="https://github.com/CHANGE-ME/x.git"), "your fork"),
        ("controller_projects", lambda one: one.update(scm_update_cache_timeout=9), "no effect without"),
        ("controller_inventory_sources", lambda one: one.update(source_path="../x"), "leads out of the project"),
        ("controller_inventory_sources", lambda one: one.update(source_path="hosts"), "is not in the project"),
        ("controller_inventory_sources", lambda one: one.update(host_filter="("), "no regular expression"),
        ("controller_templates", lambda one: one.update(playbook="hpcai.gpu_cluster.site"), "not among those"),
        ("controller_templates", lambda one: one.update(playbook="awx/settings.yml"), "no line by which"),
        (
            "controller_templates",
            lambda one: one.update(playbook="inventories/azure/group_vars/all.yml"),
            "not among those that AWX finds",
        ),
        ("controller_templates", lambda one: one.update(credentials=["x"]), "none of controller_credentials"),
        ("controller_templates", lambda one: one.update(organization="o"), "AWX ignores the field organization."),
        ("controller_templates", lambda one: one.update(job_slice_count=0), "job_slice_count 0"),
        ("controller_templates", lambda one: one.update(survey_enabled=False), "nobody is asked"),
        ("controller_templates", lambda one: one.update(extra_vars={"v": 1}), "the answer wins"),
        ("controller_templates", ask(default="abc"), "default of a required question is not used"),
        ("controller_templates", ask(required=False, default=""), "hides the inventory's value"),
        ("controller_templates", ask(required=False, default="abc", max=2), "AWX drops it without a word"),
        ("controller_templates", ask(required=False, type="integer", default=9, max=2), "AWX drops it without a word"),
        ("controller_templates", ask(type="multiplechoice", choices="a\nb"), "no list of texts"),
        (
            "controller_templates",
            ask(required=False, type="multiplechoice", choices=["a"], default="b"),
            "none of the choices",
        ),
        ("controller_templates", ask(min=3, max=2), "min is above max"),
        ("controller_templates", ask(variable="a b"), "no name of a variable"),
        ("controller_templates", ask(requird=True), "AWX ignores the key requird"),
        ("controller_workflows", node(0, success_nodes=["x"]), "a link leads to x, which is no node."),
        ("controller_workflows", node(0, failure_nodes=["b"]), "two kinds of link lead to b."),
        ("controller_workflows", node(1, success_nodes=["a"]), "are a loop"),
        ("controller_workflows", node(1, identifier="a"), "the same identifier"),
        ("controller_workflows", node(1, unified_job_template="w"), "starts its own workflow"),
        ("controller_workflows", node(1, unified_job_template=""), "needs either a template or an approval_node"),
        ("controller_workflows", node(1, inventory="i"), "takes the inventory and ignores it"),
        ("controller_workflows", node(1, extra_data={}), "nobody answers v"),
        ("controller_workflows", node(1, sucess_nodes=["a"]), "AWX ignores the field sucess_nodes."),
        ("controller_workflows", node(0, approval_node={"name": "t"}), "t is the name of two things"),
        ("controller_schedules", lambda one: one.update(extra_data={}), "its default does not count"),
        ("controller_schedules", lambda one: one.update(extra_data={"v": "x", "w": 1}), "has w, for which"),
        ("controller_schedules", lambda one: one.update(unified_job_template="x"), "neither a template nor a workflow"),
    ],
)
def test_what_awx_would_ignore(kind: str, change: t.Callable[[dict[str, t.Any]], t.Any], told: str) -> None:
    assert told in problems(kind, change)


def test_the_values_of_credentials_are_not_told() -> None:
    objects = copy.deepcopy(GOOD)
    objects["controller_credentials"][1].update(inputs={"key": "", "other": "secret~value"}, wrong="secret~value")
    assert "secret~value" not in "\n".join(awx_problems(objects, str(TEMPLATE)))


def test_every_stage_has_its_thin_playbook() -> None:
    """What a person starts; a node applies node.yml to itself."""
    ours = {path.name for path in (ROOT / "playbooks").glob("*.yml")} - {"node.yml"}
    assert ours <= {path.name for path in (TEMPLATE / "playbooks").glob("*.yml")}
    data = (TEMPLATE / "awx/objects/templates.yml").read_text(encoding="utf-8")
    # A draft is a file beside the inventory for a person to read, which a job's container would take with it.
    here = ours - {"draft_profile.yml"}
    assert [name for name in sorted(here) if f"playbook: playbooks/{name}" not in data] == []
