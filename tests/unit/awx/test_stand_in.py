# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for AWX refuses what AWX refuses, with its words, and what AWX takes and ignores."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import awx_rules as rules
import pytest
from awx_server import Awx, playbooks

ROOT = Path(__file__).resolve().parents[3]

URL = "https://git.example.org/ops/cluster.git"
Json = t.Dict[str, t.Any]
DAILY = "DTSTART:20300101T000000Z RRULE:FREQ=DAILY;INTERVAL=1"


class Site:
    """An AWX with one project, one inventory, one template with a survey."""

    def __init__(self, folder: Path) -> None:
        (folder / "collections").mkdir(parents=True)
        (folder / "collections/requirements.yml").write_text("collections: []\n")
        (folder / "p.yml").write_text("- import_playbook: a.b.c\n")
        (folder / "hosts").write_text("[all]\n")
        self.awx = Awx({URL: folder})
        self.organization = self.post("organizations", {"name": "o"})
        self.project = self.post("projects", self.of_project())
        self.inventory = self.post("inventories", {"name": "i", "organization": self.organization, "kind": ""})

    def of_project(self, **more: t.Any) -> Json:
        return {"name": "p", "organization": self.organization, "scm_type": "git", "scm_url": URL, **more}

    def of_template(self, **more: t.Any) -> Json:
        return {"name": "t", "project": self.project, "inventory": self.inventory, "playbook": "p.yml", **more}

    def ask(self, method: str, path: str, body: t.Any = None, **query: str) -> tuple[int, t.Any]:
        return self.awx.handle(method, f"/api/v2/{path}/", query, body)

    def post(self, path: str, body: t.Any) -> int:
        status, answer = self.ask("POST", path, body)
        assert status in (200, 201, 202), answer
        return t.cast(int, (answer or {}).get("id", 0))

    def refused(self, path: str, body: t.Any, method: str = "POST") -> str:
        status, answer = self.ask(method, path, body)
        assert status >= 400, answer
        return json.dumps(answer)

    def credential_type(self, name: str) -> int:
        return t.cast(int, self.ask("GET", "credential_types", name=name)[1]["results"][0]["id"])

    def galaxy(self) -> None:
        kind = self.credential_type("Ansible Galaxy/Automation Hub API Token")
        body = {
            "name": "g",
            "organization": self.organization,
            "credential_type": kind,
            "inputs": {"url": "https://g/"},
        }
        key = self.post("credentials", body)
        assert self.ask("POST", f"organizations/{self.organization}/galaxy_credentials", {"id": key})[0] == 204

    def updated(self) -> str:
        update = self.post(f"projects/{self.project}/update", {})
        self.ask("GET", f"project_updates/{update}")
        return str(self.ask("GET", f"project_updates/{update}")[1]["status"])


@pytest.fixture
def bare(tmp_path: Path) -> Site:
    return Site(tmp_path / "repository")


@pytest.fixture
def site(bare: Site) -> Site:
    bare.galaxy()
    assert bare.updated() == "successful"
    return bare


def test_a_template_waits_for_the_projects_first_update(bare: Site) -> None:
    assert "Playbook not found for project." in bare.refused("job_templates", bare.of_template())
    assert bare.updated() == "failed"  # requirements, and an organization without a Galaxy credential
    bare.galaxy()
    assert bare.updated() == "successful"
    bare.post("job_templates", bare.of_template())


def test_playbooks_are_listed_by_their_lines(tmp_path: Path) -> None:
    for name, text in {
        "a.yml": "- hosts: all\n",
        "b/c.yaml": "  - ansible.builtin.import_playbook: x\n",
        ".d.yml": "- hosts: all\n",
        "group_vars/e.yml": "hosts: 1\n",
        "x/roles/f.yml": "- hosts: all\n",
        "g.yml": "- {hosts: all}\n",
        "h.yml": "variables: 1\n",
        "i.txt": "- hosts: all\n",
        "j.yml": "- ansible.legacy.import_playbook: x\n",
    }.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert playbooks(tmp_path / "project") == [".d.yml", "a.yml", "b/c.yaml"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"playbook": "nope.yml"}, "Playbook not found for project."),
        ({"playbook": "a.b.site"}, "Playbook not found for project."),
        ({"playbook": ""}, "Must select playbook for project."),
        ({"inventory": None}, "You must either set a default value or ask to prompt on launch."),
        ({"inventory": 999}, "Invalid pk"),
        ({"project": None}, "Job Templates must have a project assigned."),
        ({"extra_vars": {"a": 1}}, "Not a valid string."),
        ({"extra_vars": "- a"}, "is not a dictionary"),
        ({"verbosity": 6}, "is not a valid choice"),
        ({"job_type": "scan"}, "is not a valid choice"),
        ({"forks": 201}, "Maximum number of forks"),
        ({"ask_scm_branch_on_launch": True}, "Project does not allow overriding branch."),
        ({"ask_limits_on_launch": True}, "ignored_by_awx"),
        ({"credentials": [1]}, "ignored_by_awx"),
        ({"organization": 1}, "ignored_by_awx"),
        ({"job_slice_count": 0}, "ignored_by_awx"),
        ({"survey_enabled": "yes"}, "Must be a valid boolean."),
        ({"name": ""}, "This field"),
    ],
)
def test_job_templates(site: Site, change: Json, told: str) -> None:
    assert told in site.refused("job_templates", site.of_template(**change))


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("projects", {"name": "q", "organization": "O", "scm_type": "git"}, "SCM URL is required."),
        ("projects", {"name": "q", "scm_type": "git", "scm_url": URL}, "ignored_by_awx"),
        ("projects", {"name": "q", "organization": "O", "scm_type": "git", "scm_url": "file:///x"}, "ignored_by_awx"),
        ("projects", {"name": "p", "organization": "O", "scm_type": "git", "scm_url": URL}, "already exists"),
        ("inventories", {"name": "j"}, "This field is required."),
        ("inventories", {"name": "j", "organization": "O", "kind": None}, "may not be null"),
        ("inventories", {"name": "j", "organization": "O", "variables": {"a": 1}}, "Not a valid string."),
        ("inventory_sources", {"name": "s", "inventory": "I", "source": "cyclecloud"}, "is not a valid choice"),
        (
            "inventory_sources",
            {"name": "s", "inventory": "I", "source": "scm"},
            "Project required for scm type sources.",
        ),
        ("inventory_sources", {"name": "s", "inventory": "I", "source": "azure_rm"}, "Credential is required"),
        (
            "inventory_sources",
            {"name": "s", "inventory": "I", "source": "scm", "source_project": "P", "source_path": "../x"},
            "ignored_by_awx",
        ),
        ("execution_environments", {"name": "e", "image": "https://quay.io/x/y:1"}, "is not valid"),
        ("execution_environments", {"name": "e", "image": "quay.io/x/y:1", "pull": "once"}, "is not a valid choice"),
        ("organizations", {"name": "o2", "galaxy_credentials": [1]}, "ignored_by_awx"),
        ("organizations", {"name": "o2", "id": 1}, "ignored_by_awx"),
    ],
)
def test_other_objects(site: Site, path: str, body: Json, told: str) -> None:
    ids = {"O": site.organization, "I": site.inventory, "P": site.project}
    assert told in site.refused(path, {key: ids.get(str(value), value) for key, value in body.items()})


QUESTION: Json = {"question_name": "q", "variable": "v", "type": "text", "required": False}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"type": "boolean"}, "allowed question types"),
        ({"required": "true"}, "expected to be boolean"),
        ({"variable": 3}, "expected to be string"),
        ({"min": ""}, "The min limit in survey question 0 expected to be integer."),
        ({"max": 0.5}, "The max limit in survey question 0 expected to be integer."),
        ({"type": "multiplechoice"}, "must specify choices"),
        ({"type": "multiplechoice", "choices": ["ab", "c"], "default": "a"}, "must be answered from the choices"),
        ({"type": "multiplechoice", "choices": ["a", "b"], "default": "a\nb"}, "can only have one default"),
        ({"type": "multiselect", "choices": ["a", "b"], "default": ["a"]}, "expected to be string"),
        ({"type": "integer", "default": "3"}, "expected to be integer"),
        ({"type": "text", "default": 3}, "expected to be string"),
        ({"type": "text", "default": None}, "expected to be string"),
        ({"type": "text", "default": "$encrypted$"}, "reserved keyword"),
        ({"type": "integer", "max": 2, "default": 3}, "ignored_by_awx"),
        ({"type": "multiplechoice", "choices": "a\nb"}, "ignored_by_awx"),
        ({"choices": ["a"]}, "ignored_by_awx"),
        ({"requird": True}, "ignored_by_awx"),
        ({"variable": "a b"}, "ignored_by_awx"),
    ],
)
def test_surveys(site: Site, change: Json, told: str) -> None:
    template = site.post("job_templates", site.of_template())
    spec = {"name": "", "description": "", "spec": [{**QUESTION, **change}]}
    assert told in site.refused(f"job_templates/{template}/survey_spec", spec)


@pytest.mark.parametrize("key", ["type", "question_name", "variable", "required"])
def test_a_question_has_all_its_keys(site: Site, key: str) -> None:
    question = {name: value for name, value in QUESTION.items() if name != key}
    with pytest.raises(rules.Refused, match=f"'{key}' missing from survey question 0"):
        rules.survey({"name": "", "description": "", "spec": [question]})


def asked(site: Site) -> int:
    template = site.post("job_templates", site.of_template(survey_enabled=True))
    spec = {
        "name": "",
        "description": "",
        "spec": [{**QUESTION, "required": True, "default": "abc", "min": 2, "max": 4}],
    }
    assert site.ask("POST", f"job_templates/{template}/survey_spec", spec)[0] == 200
    return template


def test_answers(site: Site) -> None:
    launch = f"job_templates/{asked(site)}/launch"
    assert "'v' value missing" in site.refused(launch, {})  # the default does not count
    assert "too small (length is 1 must be at least 2)" in site.refused(launch, {"extra_vars": {"v": "a"}})
    assert "too large (must be no more than 4)" in site.refused(launch, {"extra_vars": {"v": "abcde"}})
    assert "expected to be a string" in site.refused(launch, {"extra_vars": {"v": 1}})
    assert "ignored_by_awx" in site.refused(launch, {"extra_vars": {"v": "abc", "w": 1}})
    assert site.ask("POST", launch, {"extra_vars": {"v": "abc"}})[0] == 201


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra_data": {}}, "'v' value missing"),
        ({"limit": "x"}, "Field is not configured to prompt on launch."),
        ({"rrule": "RRULE:FREQ=DAILY;INTERVAL=1"}, "Valid DTSTART required"),
        ({"rrule": "DTSTART:20300101T000000 RRULE:FREQ=DAILY;INTERVAL=1"}, "cannot be a naive datetime"),
        ({"rrule": "DTSTART:20300101T000000Z RRULE:FREQ=DAILY"}, "INTERVAL required in rrule"),
        ({"rrule": "DTSTART:20300101T000000Z"}, "One or more rule required"),
        ({"rrule": DAILY.replace("DAILY", "SECONDLY")}, "SECONDLY is not supported"),
        ({"rrule": DAILY + ";COUNT=1000"}, "COUNT > 999 is unsupported"),
        ({"rrule": DAILY + ";COUNT=3;UNTIL=20300301T000000Z"}, "both COUNT and UNTIL"),
        ({"rrule": DAILY.replace("DAILY", "MONTHLY") + ";BYDAY=5MO"}, "numeric prefix"),
        ({"rrule": DAILY.replace(" ", " DTSTART:20310101T000000Z ")}, "Multiple DTSTART"),
    ],
)
def test_schedules(site: Site, change: Json, told: str) -> None:
    body = {"name": "s", "unified_job_template": asked(site), "rrule": DAILY, "extra_data": {"v": "abc"}}
    assert told in site.refused("schedules", {**body, **change})
    site.post("schedules", body)


FIELD: Json = {"id": "key", "label": "Key", "secret": True}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "ssh"}, "is not a valid choice"),
        ({"inputs": {"fields": [{"id": "a-b", "label": "x"}]}}, "is an invalid variable name"),
        ({"inputs": {"fields": [{"id": "tower", "label": "x"}]}}, "reserved field name"),
        ({"inputs": {"fields": [FIELD, FIELD]}}, "field IDs must be unique"),
        ({"inputs": {"fields": [{"id": "a", "label": "x", "type": "integer"}]}}, "is not one of"),
        (
            {"inputs": {"fields": [{"id": "a", "label": "x", "type": "boolean", "secret": True}]}},
            "not allowed for boolean",
        ),
        ({"inputs": {"fields": [{**FIELD, "required": True}]}}, "Additional properties are not allowed"),
        ({"inputs": {"fields": [FIELD], "required": ["nope"]}}, "ignored_by_awx"),
        ({"injectors": {"env": {"ANSIBLE_FOO": "{{ key }}"}}}, "may affect Ansible configuration"),
        ({"injectors": {"env": {"JOB_ID": "{{ key }}"}}}, "not allowed to be used in credentials"),
        ({"injectors": {"env": {"A-B": "{{ key }}"}}}, "does not match any of the regexes"),
        ({"injectors": {"env": {"A": 1}}}, "expected string"),
        ({"injectors": {"env": {"A": "{{ nope }}"}}}, "'nope' is undefined"),
        ({"injectors": {"env": {"A": "{{ lookup('env', 'HOME') }}"}}}, "'lookup' is undefined"),
        ({"injectors": {"env": {"A": "{{ key"}}}, "Syntax error rendering template"),
        ({"injectors": {"env": {"A": "{{ key.__class__ }}"}}}, "unsafe"),
        ({"injectors": {"env": {"A": "{{ tower.filename }}"}}}, "Must define unnamed file injector"),
        ({"injectors": {"extra_vars": {"a": 1}}}, "not valid under any of the given schemas"),
        ({"injectors": {"extra_vars": {"a": [True]}}}, "not valid under any of the given schemas"),
        ({"injectors": {"file": {"template": "x", "template.a": "y"}}}, "multi-file syntax"),
        ({"injectors": {"file": {"tmpl": "x"}}}, "does not match any of the regexes"),
    ],
)
def test_types_of_credentials(site: Site, change: Json, told: str) -> None:
    body = {"name": "c", "kind": "cloud", "inputs": {"fields": [FIELD]}, "injectors": {"env": {"A": "{{ key }}"}}}
    assert told in site.refused("credential_types", {**body, **change})
    site.post("credential_types", body)


def credential(site: Site, kind: str, name: str, **inputs: t.Any) -> Json:
    return {
        "name": name,
        "organization": site.organization,
        "credential_type": site.credential_type(kind),
        "inputs": inputs,
    }


def test_credentials(site: Site) -> None:
    azure = "Microsoft Azure Resource Manager"
    assert "was unexpected" in site.refused("credentials", credential(site, azure, "a", subscription="s", foo="x"))
    assert "is not of type" in site.refused("credentials", credential(site, azure, "a", subscription=1))
    assert "ignored_by_awx" in site.refused("credentials", credential(site, azure, "a", tenant="t"))
    body = credential(site, azure, "a", subscription="s", secret="x")
    assert "Missing 'user'" in site.refused("credentials", {**body, "organization": None})
    key = site.post("credentials", body)
    assert site.ask("GET", f"credentials/{key}")[1]["inputs"] == {"subscription": "s", "secret": "$encrypted$"}
    template = site.post("job_templates", site.of_template())
    other = site.post("credentials", {**body, "name": "b"})
    galaxy = site.post(
        "credentials", credential(site, "Ansible Galaxy/Automation Hub API Token", "h", url="https://g/")
    )
    assert site.ask("POST", f"job_templates/{template}/credentials", {"id": key})[0] == 204
    assert "Cannot assign multiple" in site.refused(f"job_templates/{template}/credentials", {"id": other})
    assert "kind `galaxy`" in site.refused(f"job_templates/{template}/credentials", {"id": galaxy})


def nodes(site: Site) -> tuple[int, list[int]]:
    template = site.post("job_templates", site.of_template())
    flow = site.post("workflow_job_templates", {"name": "w", "organization": site.organization})
    make = {"workflow_job_template": flow, "unified_job_template": template}
    return flow, [site.post("workflow_job_template_nodes", {**make, "identifier": name}) for name in "abc"]


def test_nodes_and_links(site: Site) -> None:
    flow, (a, b, c) = nodes(site)
    path = "workflow_job_template_nodes"
    assert site.ask("POST", f"{path}/{a}/success_nodes", {"id": b})[0] == 204
    assert site.ask("POST", f"{path}/{a}/success_nodes", {"id": b})[0] == 204
    assert "Relationship not allowed." in site.refused(f"{path}/{a}/failure_nodes", {"id": b})
    assert "Cycle detected." in site.refused(f"{path}/{a}/success_nodes", {"id": a})
    assert site.ask("POST", f"{path}/{b}/always_nodes", {"id": c})[0] == 204
    assert "Cycle detected." in site.refused(f"{path}/{c}/success_nodes", {"id": a})
    assert "does not exist" in site.refused(f"{path}/{c}/success_nodes", {"id": 999})
    body = {"workflow_job_template": flow, "identifier": "a"}
    assert "already exists" in site.refused(path, body)
    assert "ignored_by_awx" in site.refused(path, {**body, "identifier": "d", "success_nodes": [a]})
    assert "not configured to prompt" in site.refused(
        path,
        {
            **body,
            "identifier": "d",
            "unified_job_template": site.ask("GET", f"{path}/{a}")[1]["unified_job_template"],
            "inventory": site.inventory,
        },
    )
    assert "ignored_by_awx" in site.refused(path, {**body, "identifier": "d", "unified_job_template": flow})
    approval = site.post(path, {**body, "identifier": "d"})
    assert "This field is required." in site.refused(f"{path}/{approval}/create_approval_template", {"timeout": 1})
    assert "A valid integer" in site.refused(
        f"{path}/{approval}/create_approval_template", {"name": "x", "timeout": "1"}
    )
    site.post(f"{path}/{approval}/create_approval_template", {"name": "x"})
    assert "ignored_by_awx" in site.refused(f"{path}/{a}/create_approval_template", {"name": "y"})
    assert site.ask("GET", "workflow_approval_templates")[0] == 404


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"notification_configuration": {"channels": "a", "token": "x"}}, "incorrect type, expected list"),
        ({"notification_configuration": {"token": "x"}}, "Missing required fields"),
        ({"notification_configuration": {"channels": [], "token": "x", "colour": "red"}}, "ignored_by_awx"),
        ({"notification_type": "pigeon"}, "is not a valid choice"),
    ],
)
def test_notifications(site: Site, change: Json, told: str) -> None:
    body = {"name": "n", "organization": site.organization, "notification_type": "slack"}
    assert told in site.refused("notification_templates", {**body, **change})


def test_lists_come_in_pages(site: Site) -> None:
    for number in range(30):
        site.post("inventories", {"name": f"i{number}", "organization": site.organization, "kind": ""})
    first = site.ask("GET", "inventories")[1]
    assert (first["count"], len(first["results"])) == (31, 25)
    assert first["next"].endswith("?page=2")
    assert len(site.ask("GET", "inventories", page="2")[1]["results"]) == 6
    assert site.ask("GET", "inventories", colour="red")[0] == 400
