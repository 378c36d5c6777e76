# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX accepts in silence and then ignores, found in the objects before they are sent."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

Object = t.Dict[str, t.Any]
Objects = t.Mapping[str, t.Sequence[Object]]
# Fields of each kind that have an effect. awx.awx takes some more, which AWX drops: an organization of a job template,
# custom_virtualenv.
NOTIFY = " notification_templates_started notification_templates_success notification_templates_error"
PROMPTS = (
    "credential diff_mode execution_environment forks instance_groups inventory job_slice_count "
    "job_type labels limit scm_branch "
    "skip_tags tags timeout variables verbosity"
)
ASK = " " + " ".join(f"ask_{name}_on_launch" for name in PROMPTS.split())
ASK_WORKFLOW = " " + " ".join(
    f"ask_{name}_on_launch" for name in "inventory labels limit scm_branch skip_tags tags variables".split()
)
FIELDS = {
    kind: set(fields.split())
    for kind, fields in {
        "aap_organizations": "name description default_environment max_hosts galaxy_credentials instance_groups "
        "notification_templates_approvals" + NOTIFY,
        "controller_credential_types": "name description kind inputs injectors",
        "controller_credentials": "name description organization user team credential_type inputs",
        "controller_notifications": "name description organization notification_type "
        "notification_configuration messages",
        "controller_execution_environments": "name description organization image credential pull",
        "controller_projects": "name description organization scm_type scm_url scm_branch "
        "scm_refspec scm_clean scm_delete_on_update "
        "scm_track_submodules scm_update_on_launch scm_update_cache_timeout allow_override "
        "credential default_environment timeout "
        "signature_validation_credential" + NOTIFY,
        "controller_inventories": "name description organization kind host_filter variables "
        "prevent_instance_group_fallback",
        "controller_inventory_sources": "name description inventory source source_path "
        "source_project source_vars credential "
        "execution_environment overwrite overwrite_vars update_on_launch update_cache_timeout "
        "timeout verbosity limit host_filter "
        "enabled_var enabled_value scm_branch" + NOTIFY,
        "controller_templates": "name description job_type project playbook inventory "
        "execution_environment credentials extra_vars "
        "survey_enabled survey_spec limit forks verbosity timeout job_tags skip_tags start_at_task "
        "become_enabled diff_mode "
        "force_handlers use_fact_cache allow_simultaneous job_slice_count scm_branch host_config_key "
        "instance_groups labels "
        "prevent_instance_group_fallback" + ASK + NOTIFY,
        "controller_workflows": "name description organization extra_vars inventory limit job_tags "
        "skip_tags scm_branch labels "
        "survey_enabled survey_spec allow_simultaneous notification_templates_approvals simplified_workflow_nodes"
        + ASK_WORKFLOW
        + NOTIFY,
        "controller_schedules": "name description unified_job_template rrule enabled extra_data "
        "inventory limit job_type job_tags "
        "skip_tags scm_branch verbosity diff_mode timeout forks job_slice_count "
        "execution_environment credentials labels",
    }.items()
}
NODE = set(
    "identifier unified_job_template approval_node extra_data inventory limit job_type job_tags "
    "skip_tags scm_branch verbosity "
    "diff_mode timeout forks job_slice_count execution_environment credentials labels "
    "all_parents_must_converge success_nodes "
    "failure_nodes always_nodes".split()
)
APPROVAL = {"name", "description", "timeout"}
LINKS = ("success_nodes", "failure_nodes", "always_nodes")
QUESTION = set("question_name question_description variable type required min max choices default".split())
REQUIRED_INPUTS = {
    "Ansible Galaxy/Automation Hub API Token": ["url"],
    "Container Registry": ["host"],
    "Machine": ["username", "ssh_key_data"],
    "Microsoft Azure Resource Manager": ["subscription", "tenant", "client", "secret"],
}
CONFIGURATION = {
    "awssns": "aws_access_key_id aws_region aws_secret_access_key aws_session_token sns_topic_arn",
    "email": "host password port recipients sender timeout use_ssl use_tls username",
    "grafana": "grafana_key grafana_url",
    "irc": "nickname password port server targets use_ssl",
    "mattermost": "mattermost_no_verify_ssl mattermost_url",
    "pagerduty": "client_name service_key subdomain token",
    "rocketchat": "rocketchat_no_verify_ssl rocketchat_url",
    "slack": "channels token",
    "twilio": "account_sid account_token from_number to_numbers",
    "webhook": "disable_ssl_verification headers http_method password url username",
}
# As AWX looks for the line of a play, whether or not the file is one.
PLAY = re.compile(
    r"^\s*(-\s+)?(hosts|include|import_playbook|ansible\.builtin\.include|ansible\.builtin\.import_playbook):",
    re.MULTILINE,
)
NEVER_LISTED = re.compile(r"(^|/)(roles|tasks|group_vars|host_vars|\.[^/]*)/")
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
URL = re.compile(r"(https?|ssh|git)://[^/\s]+/\S+|[\w.-]+@[\w.-]+:\S+")


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., list[str]]]:
        return {"awx_problems": awx_problems}


def awx_problems(objects: Objects, project: str) -> list[str]:
    """Return what AWX would take and ignore, in words; no values of credentials among them."""
    told: list[str] = []
    for kind, entries in objects.items():
        for entry in entries:
            about = f"{kind}, {entry.get('name', 'without a name')}"
            extra = sorted(set(entry) - FIELDS.get(kind, set(entry)))
            told += [f"{about}: AWX ignores the field {field}." for field in extra]
            told += [f"{about}: {text}" for text in _CHECKS.get(kind, _nothing)(entry, objects, Path(project))]
    return told + _names(objects)


def _nothing(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    return iter(())


def _names(objects: Objects) -> list[str]:
    kinds = ("controller_projects", "controller_inventory_sources", "controller_templates", "controller_workflows")
    nodes = [
        node for flow in objects.get("controller_workflows", []) for node in flow.get("simplified_workflow_nodes", [])
    ]
    names = [entry["name"] for kind in kinds for entry in objects.get(kind, [])]
    names += [node["approval_node"].get("name", "") for node in nodes if node.get("approval_node")]
    twice = sorted({name for name in names if names.count(name) > 1})
    return [
        f"{name} is the name of two things that a schedule or a node can start: awx.awx finds them by name alone."
        for name in twice
    ]


def _by_name(objects: Objects, kind: str) -> dict[str, Object]:
    return {entry.get("name", ""): entry for entry in objects.get(kind, [])}


def _organization(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    kinds = {one["name"]: one["credential_type"] for one in objects.get("controller_credentials", [])}
    galaxy = [name for name in entry.get("galaxy_credentials", []) if kinds.get(name, "").startswith("Ansible Galaxy")]
    wants = (project / "collections/requirements.yml").is_file()
    projects = [
        one["name"] for one in objects.get("controller_projects", []) if one.get("organization") == entry.get("name")
    ]
    if wants and projects and not galaxy:
        yield f"it has no Galaxy credential, so AWX skips collections/requirements.yml of {', '.join(projects)}."


def _credential(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    kind = entry.get("credential_type", "")
    own = _by_name(objects, "controller_credential_types").get(kind)
    required = (own or {}).get("inputs", {}).get("required", []) if own else REQUIRED_INPUTS.get(kind, [])
    for name in required:
        if entry.get("inputs", {}).get(name) in (None, ""):
            yield f"the input {name} is empty; AWX does not ask for it and injects nothing."


def _credential_type(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    inputs = entry.get("inputs", {})
    known = {field.get("id") for field in inputs.get("fields", [])}
    for name in inputs.get("required", []):
        if name not in known:
            yield f"required names {name}, which is none of the fields."


def _project(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    if entry.get("organization") not in _by_name(objects, "aap_organizations"):
        yield f"its organization {entry.get('organization')} is none of aap_organizations."
    address = str(entry.get("scm_url", ""))
    if entry.get("scm_type") and not URL.fullmatch(address):
        yield f"scm_url {address} is no address that AWX can fetch."
    if "CHANGE-ME" in address:
        yield "scm_url is the template's: set site_scm_url to your fork."
    if entry.get("scm_update_cache_timeout") and not entry.get("scm_update_on_launch"):
        yield "scm_update_cache_timeout has no effect without scm_update_on_launch."


def _notification(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    known = CONFIGURATION.get(entry.get("notification_type", ""), "").split()
    for key in sorted(set(entry.get("notification_configuration", {})) - set(known)):
        yield f"notification_configuration has {key}, which {entry.get('notification_type')} does not read."


def _source(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    path = str(entry.get("source_path", ""))
    if entry.get("source") != "scm":
        if path:
            yield "source_path is read for the source scm alone."
        return
    if path.startswith("/") or ".." in path.split("/"):
        yield f"source_path {path} leads out of the project."
    elif not (project / path).is_file():
        yield f"source_path {path} is not in the project."
    if entry.get("host_filter"):
        yield from _regular(str(entry["host_filter"]))


def _regular(expression: str) -> t.Iterator[str]:
    try:
        re.compile(expression)
    except re.error as exc:
        yield f"host_filter is no regular expression: {exc}."


def _template(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    path = str(entry.get("playbook", ""))
    file = project / path
    if not path.endswith((".yml", ".yaml")) or NEVER_LISTED.search(path) or not file.is_file():
        yield f"playbook {path} is not among those that AWX finds in the project."
    elif not PLAY.search(file.read_text(encoding="utf-8")):
        yield f"playbook {path} has no line by which AWX would know it as one."
    known = _by_name(objects, "controller_credentials")
    for name in entry.get("credentials", []):
        if name not in known:
            yield f"credential {name} is none of controller_credentials."
    if entry.get("job_slice_count") == 0:
        yield "job_slice_count 0 is taken and means 1."
    yield from _survey(entry)


def _survey(entry: Object) -> t.Iterator[str]:
    questions = (entry.get("survey_spec") or {}).get("spec") or []
    if bool(entry.get("survey_enabled")) != bool(questions):
        yield "survey_enabled and survey_spec go together: without both nobody is asked."
    given = entry.get("extra_vars") or {}
    for question in questions:
        about = f"question {question.get('variable')}"
        for key in sorted(set(question) - QUESTION):
            yield f"{about}: AWX ignores the key {key}."
        if not VARIABLE.fullmatch(str(question.get("variable", ""))):
            yield f"{about}: that is no name of a variable."
        if question.get("variable") in given:
            yield f"{about}: extra_vars sets it too, and the answer wins."
        for text in _answers(question):
            yield f"{about}: {text}"


def _answers(question: Object) -> t.Iterator[str]:
    choices = question.get("choices")
    if question.get("type") in ("multiplechoice", "multiselect"):
        if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
            yield "choices are no list of texts, and AWX takes whatever they are."
            return
    elif choices:
        yield f"choices have no effect on the type {question.get('type')}."
    low, high = question.get("min"), question.get("max")
    if low is not None and high is not None and low > high:
        yield "min is above max: no answer is right."
    if "default" in question:
        yield from _default(question, choices or [], low, high)


def _default(question: Object, choices: list[str], low: t.Any, high: t.Any) -> t.Iterator[str]:
    default = question["default"]
    if question.get("required"):
        yield "the default of a required question is not used when a job is started by API, schedule or workflow."
    if default == "":
        yield "an empty default becomes an empty extra variable, which hides the inventory's value."
    size = len(default) if isinstance(default, str) else default
    if question.get("type") not in ("multiplechoice", "multiselect") and isinstance(size, (int, float)):
        if (low is not None and size < low) or (high is not None and size > high):
            yield "the default is outside min and max, and AWX drops it without a word."
    elif set(str(default).split("\n")) - set(choices):
        yield "the default is none of the choices."


def _asked(template: Object | None) -> list[Object]:
    return ((template or {}).get("survey_spec") or {}).get("spec") or []


def _answered(template: Object | None, data: Object) -> t.Iterator[str]:
    for question in _asked(template):
        if question.get("required") and question.get("variable") not in data:
            yield f"{question.get('variable')} has to be answered in extra_data; its default does not count."
    known = {question.get("variable") for question in _asked(template)}
    if not (template or {}).get("ask_variables_on_launch"):
        for name in sorted(set(data) - known):
            yield f"extra_data has {name}, for which the template does not ask."


def _workflow(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    nodes = entry.get("simplified_workflow_nodes", [])
    known = {node.get("identifier") for node in nodes}
    if len(known) != len(nodes):
        yield "two nodes have the same identifier."
    answers = {question.get("variable") for question in _asked(entry)} | set(entry.get("extra_vars") or {})
    for node in nodes:
        for text in _node(entry, node, objects, known, answers):
            yield f"node {node.get('identifier')}: {text}"
    yield from _loops(nodes)
    yield from _survey(entry)


def _node(entry: Object, node: Object, objects: Objects, known: set[t.Any], answers: set[t.Any]) -> t.Iterator[str]:
    for field in sorted(set(node) - NODE):
        yield f"AWX ignores the field {field}."
    for field in sorted(set(node.get("approval_node") or {}) - APPROVAL):
        yield f"AWX ignores the field {field} of approval_node."
    name = node.get("unified_job_template")
    if bool(name) == bool(node.get("approval_node")):
        yield "it needs either a template or an approval_node; without one AWX does nothing there."
    if name == entry.get("name"):
        yield "it starts its own workflow, for ever."
    template = _by_name(objects, "controller_templates").get(name)
    if node.get("inventory") and not (template or {}).get("ask_inventory_on_launch"):
        yield "AWX takes the inventory and ignores it, since the template does not ask for one."
    yield from _ends(node, known)
    for question in _asked(template):
        if question.get("required") and question.get("variable") not in answers | set(node.get("extra_data") or {}):
            yield f"nobody answers {question.get('variable')}, which {name} requires."


def _ends(node: Object, known: set[t.Any]) -> t.Iterator[str]:
    ends = [end for link in LINKS for end in node.get(link, [])]
    for end in sorted({end for end in ends if ends.count(end) > 1}):
        yield f"two kinds of link lead to {end}."
    for end in ends:
        if end not in known:
            yield f"a link leads to {end}, which is no node."


def _loops(nodes: t.Sequence[Object]) -> t.Iterator[str]:
    left = {node.get("identifier"): {end for link in LINKS for end in node.get(link, [])} for node in nodes}
    while left:
        ends = {name for name, children in left.items() if not children & set(left)}
        if not ends:
            yield f"the links between {', '.join(sorted(map(str, left)))} are a loop, which AWX does not always refuse."
            return
        left = {name: children for name, children in left.items() if name not in ends}


def _schedule(entry: Object, objects: Objects, project: Path) -> t.Iterator[str]:
    name = entry.get("unified_job_template")
    template = {**_by_name(objects, "controller_workflows"), **_by_name(objects, "controller_templates")}.get(str(name))
    if template is None:
        yield f"{name} is neither a template nor a workflow."
        return
    yield from _answered(template, entry.get("extra_data") or {})


_CHECKS: dict[str, t.Callable[[Object, Objects, Path], t.Iterator[str]]] = {
    "aap_organizations": _organization,
    "controller_credential_types": _credential_type,
    "controller_credentials": _credential,
    "controller_notifications": _notification,
    "controller_projects": _project,
    "controller_inventory_sources": _source,
    "controller_templates": _template,
    "controller_workflows": _workflow,
    "controller_schedules": _schedule,
}
