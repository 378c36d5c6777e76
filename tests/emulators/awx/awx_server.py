# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A strict stand-in for AWX's API: objects, their fields, links and surveys. It runs no jobs.

Fields, choices and limits are those that a running AWX names (``api.json``). What AWX takes and then ignores is
refused, with ``ignored_by_awx`` in the answer, since a test against a lenient server would pass.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
import typing as t
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import awx_rules as rules
from awx_rules import Json, Refused, ignored

TABLE: Json = json.loads(Path(__file__).with_name("api.json").read_text(encoding="utf-8"))
ENDPOINTS: Json = TABLE["endpoints"]
ROOT = "/api/v2/"
PAGE = 25
JOBS = ("job_templates", "projects", "inventory_sources", "workflow_job_templates", "workflow_approval_templates")
POINTS_TO = {
    "organization": ("organizations",),
    "credential": ("credentials",),
    "webhook_credential": ("credentials",),
    "signature_validation_credential": ("credentials",),
    "credential_type": ("credential_types",),
    "default_environment": ("execution_environments",),
    "execution_environment": ("execution_environments",),
    "inventory": ("inventories",),
    "project": ("projects",),
    "source_project": ("projects",),
    "unified_job_template": JOBS,
    "workflow_job_template": ("workflow_job_templates",),
    "user": (),
    "team": (),
}
UNIQUE = {
    "credentials": ("organization", "credential_type", "name"),
    "credential_types": ("name", "kind"),
    "groups": ("inventory", "name"),
    "hosts": ("inventory", "name"),
    "inventory_sources": ("inventory", "name"),
    "schedules": ("unified_job_template", "name"),
    "workflow_job_template_nodes": ("workflow_job_template", "identifier"),
}
TEXTS = {
    "job_templates": ("extra_vars",),
    "workflow_job_templates": ("extra_vars",),
    "inventories": ("variables",),
    "hosts": ("variables",),
    "groups": ("variables",),
}
NOTIFICATIONS = tuple(f"notification_templates_{when}" for when in ("started", "success", "error"))
LINKS = ("success_nodes", "failure_nodes", "always_nodes")
ASSOCIATIONS = {
    "organizations": ("galaxy_credentials", "instance_groups", "notification_templates_approvals", *NOTIFICATIONS),
    "projects": NOTIFICATIONS,
    "inventory_sources": NOTIFICATIONS,
    "job_templates": ("credentials", "labels", "instance_groups", *NOTIFICATIONS),
    "workflow_job_templates": ("labels", "notification_templates_approvals", *NOTIFICATIONS),
    "workflow_job_template_nodes": ("credentials", "labels", "instance_groups", *LINKS),
    "schedules": ("credentials", "labels", "instance_groups"),
}
PROMPTED = {
    "diff_mode": "ask_diff_mode_on_launch",
    "execution_environment": "ask_execution_environment_on_launch",
    "forks": "ask_forks_on_launch",
    "inventory": "ask_inventory_on_launch",
    "job_slice_count": "ask_job_slice_count_on_launch",
    "job_tags": "ask_tags_on_launch",
    "job_type": "ask_job_type_on_launch",
    "limit": "ask_limit_on_launch",
    "scm_branch": "ask_scm_branch_on_launch",
    "skip_tags": "ask_skip_tags_on_launch",
    "timeout": "ask_timeout_on_launch",
    "verbosity": "ask_verbosity_on_launch",
}
PLAY = re.compile(r"^\s*(?:-\s+)?(?:ansible\.builtin\.)?(?:include|import_playbook):|^\s*(?:-\s+)?hosts:", re.MULTILINE)
HIDDEN = {"roles", "tasks", "group_vars", "host_vars"}


def playbooks(project: Path) -> list[str]:
    """Return what AWX lists as playbooks of a directory."""
    found = []
    for path in sorted(project.rglob("*")):
        inside = path.relative_to(project)
        if path.suffix not in (".yml", ".yaml") or not path.is_file():
            continue
        if any(part in HIDDEN or part.startswith(".") for part in inside.parts[:-1]):
            continue
        text = path.read_text(encoding="utf-8")
        if PLAY.search(text) or text.startswith("$ANSIBLE_VAULT;"):
            found.append(inside.as_posix())
    return found


class Awx:
    """The state of an AWX; `handle` answers one request."""

    def __init__(self, repositories: t.Mapping[str, Path], password: str = "stand-in") -> None:
        self.repositories = dict(repositories)
        self.password = password
        self.tables: dict[str, dict[int, Json]] = {name: {} for name in (*ENDPOINTS, "workflow_approval_templates")}
        self.links: dict[tuple[str, int, str], list[int]] = {}
        self.surveys: dict[int, Json] = {}
        self.secrets: dict[int, Json] = {}
        self.updates: dict[int, Json] = {}
        self.tokens: dict[int, str] = {}
        self.requests: list[tuple[str, str, t.Any]] = []
        self._last = 0
        for kind in TABLE["managed_credential_types"]:
            inputs = {"fields": kind["inputs"], "required": kind["required"]}
            self._store(
                "credential_types", {**kind, "inputs": inputs, "injectors": {}, "managed": True, "description": ""}
            )

    # Requests.

    def handle(self, method: str, path: str, query: t.Mapping[str, str], body: t.Any) -> tuple[int, t.Any]:
        """Return status and document."""
        self.requests.append((method, path, body))
        parts = [part for part in path[len(ROOT) :].split("/") if part]
        try:
            return self._route(method, parts, query, body)
        except Refused as refusal:
            return refusal.status, refusal.document

    def _route(self, method: str, parts: list[str], query: t.Mapping[str, str], body: t.Any) -> tuple[int, t.Any]:
        kind, rest = parts[0], parts[1:]
        if kind == "tokens":
            return self._token(method, rest)
        if kind == "project_updates" and method == "GET":
            return 200, self._update(int(rest[0]))
        if kind == "workflow_approval_templates" and not rest:
            raise Refused("page not found", 404)
        if not rest and kind in (*self.tables, "unified_job_templates"):
            return self._collection(method, kind, query, body)
        if len(rest) in (1, 2) and rest[0].isdigit() and int(rest[0]) in self.tables.get(kind, {}):
            return self._object(method, kind, int(rest[0]), rest[1:], query, body)
        raise Refused({"detail": "Not found."}, 404)

    def _token(self, method: str, rest: list[str]) -> tuple[int, t.Any]:
        if method == "DELETE":
            del self.tokens[int(rest[0])]
            return 204, None
        self._last += 1
        self.tokens[self._last] = f"token-{self._last}"
        return 201, {"id": self._last, "token": self.tokens[self._last]}

    def _collection(self, method: str, kind: str, query: t.Mapping[str, str], body: t.Any) -> tuple[int, t.Any]:
        if method == "GET":
            return 200, self._list(kind, query)
        if method != "POST" or kind not in ENDPOINTS:
            raise Refused({"detail": f'Method "{method}" not allowed.'}, 405)
        return 201, self.show(kind, self.create(kind, body))

    def _object(
        self, method: str, kind: str, key: int, rest: list[str], query: t.Mapping[str, str], body: t.Any
    ) -> tuple[int, t.Any]:
        if rest:
            return self._below(method, kind, key, rest[0], query, body)
        if method == "GET":
            return 200, self.show(kind, key)
        if method == "PATCH":
            self.change(kind, key, body)
            return 200, self.show(kind, key)
        raise Refused({"detail": f'Method "{method}" not allowed.'}, 405)

    def _below(
        self, method: str, kind: str, key: int, what: str, query: t.Mapping[str, str], body: t.Any
    ) -> tuple[int, t.Any]:
        if what == "survey_spec" and kind in ("job_templates", "workflow_job_templates"):
            if method == "POST":
                rules.survey(body, self.surveys.get(key))
                self.surveys[key] = copy.deepcopy(body)
            return 200, copy.deepcopy(self.surveys.get(key, {})) if method == "GET" else None
        if what == "launch" and method == "POST":
            return 201, self._launch(kind, key, body or {})
        if what == "update" and kind == "projects" and method == "POST":
            return 202, self._begin(key)
        if what == "create_approval_template" and method == "POST" and kind == "workflow_job_template_nodes":
            return 201, self._approval(key, body)
        if what not in ASSOCIATIONS.get(kind, ()):
            raise Refused({"detail": "Not found."}, 404)
        if method == "POST":
            self._associate(kind, key, what, body)
            return 204, None
        table = self._end(what)
        ids = self.links.get((kind, key, what), [])
        return 200, self._page([self.show(table, one) for one in ids], f"{kind}/{key}/{what}/", query)

    # Lists.

    def _list(self, kind: str, query: t.Mapping[str, str]) -> Json:
        tables = JOBS[:-1] if kind == "unified_job_templates" else (kind,)
        shown = [self.show(table, key) for table in tables for key in self.tables[table]]
        either = {name[4:]: value for name, value in query.items() if name.startswith("or__")}
        every = {name: value for name, value in query.items() if not name.startswith("or__") and name != "page"}
        for name in (*either, *every):
            if name != "id" and not any(
                name in ENDPOINTS[table]["fields"] or name == "organization" for table in tables
            ):
                raise Refused({"detail": f"{kind} has no field named '{name}'"})
        found = [one for one in shown if all(str(one.get(name)) == value for name, value in every.items())]
        if either:
            found = [one for one in found if any(str(one.get(name)) == value for name, value in either.items())]
        return self._page(found, f"{kind}/", query)

    def _page(self, found: list[Json], path: str, query: t.Mapping[str, str]) -> Json:
        number = int(query.get("page", "1"))
        rest = {**query, "page": str(number + 1)}
        more = f"{ROOT}{path}?{urllib.parse.urlencode(rest)}" if len(found) > number * PAGE else None
        return {
            "count": len(found),
            "next": more,
            "previous": None,
            "results": found[(number - 1) * PAGE : number * PAGE],
        }

    def show(self, kind: str, key: int) -> Json:
        """Return an object as it is read."""
        shown = copy.deepcopy(self.tables[kind][key])
        shown.setdefault("type", kind[:-1] if kind != "inventories" else "inventory")
        related = {}
        if kind in ("job_templates", "workflow_job_templates"):
            related["survey_spec"] = f"{ROOT}{kind}/{key}/survey_spec/"
        if kind == "projects":
            related["update"] = f"{ROOT}{kind}/{key}/update/"
        below = shown.get("unified_job_template")
        if below:
            table = next(table for table in JOBS if below in self.tables[table])
            related["unified_job_template"] = f"{ROOT}{table}/{below}/"
        shown.update(id=key, url=f"{ROOT}{kind}/{key}/", related=related)
        summary = {"current_update": {"id": shown["_update"]}} if "_update" in shown else {}
        shown["summary_fields"] = summary
        for link in LINKS if kind == "workflow_job_template_nodes" else ():
            shown[link] = list(self.links.get((kind, key, link), []))
        return {name: value for name, value in shown.items() if not name.startswith("_")}

    # Objects.

    def _store(self, kind: str, fields: Json) -> int:
        self._last += 1
        self.tables[kind][self._last] = fields
        return self._last

    def create(self, kind: str, body: t.Any) -> int:
        """Check the fields of a new object, and keep it."""
        body = self._fields(kind, body, {})
        spec = ENDPOINTS[kind]["fields"]
        missing = [name for name in spec if spec[name]["required"] and body.get(name) in (None, "")]
        if missing:
            raise Refused({name: ["This field is required."] for name in missing})
        whole = {name: copy.deepcopy(one.get("default")) for name, one in spec.items() if not one.get("write_only")}
        whole.update(body)
        if kind == "workflow_job_template_nodes" and "identifier" not in body:
            whole["identifier"] = f"node-{self._last + 1}"
        self._rules(kind, whole, 0)
        key = self._store(kind, whole)
        if kind == "projects":
            self._begin(key)
        return key

    def change(self, kind: str, key: int, body: t.Any) -> None:
        """Check the fields of a change, and keep it."""
        old = self.tables[kind][key]
        body = self._fields(kind, body, old)
        if kind == "credential_types":
            used = any(one["credential_type"] == key for one in self.tables["credentials"].values())
            if old.get("managed") or (used and body.get("inputs", old["inputs"]) != old["inputs"]):
                raise Refused(
                    {"detail": "Modifications to inputs are not allowed for credential types that are in use"}, 403
                )
        whole = {**old, **body}
        if kind == "credentials":
            stored = {
                name: self.secrets.get(key, {}).get(name, value) if value == "$encrypted$" else value
                for name, value in whole["inputs"].items()
            }
            whole["inputs"] = stored
        self._rules(kind, whole, key)
        self.tables[kind][key] = whole

    def _fields(self, kind: str, body: t.Any, old: Json) -> Json:
        if not isinstance(body, dict):
            raise Refused({"detail": "JSON parse error - not a JSON object"})
        table = ENDPOINTS["workflow_approval_templates/N" if kind == "workflow_approval_templates" else kind]
        kept = {}
        for name, value in body.items():
            if name in table["fields"]:
                rules.plain(name, value, table["fields"][name], TEXTS.get(kind, ()))
                self._pointer(kind, name, value)
                kept[name] = value
            elif not self._as_it_is(kind, name, value, old):
                raise ignored(f"{kind}: field {name}")
        return kept

    def _as_it_is(self, kind: str, name: str, value: t.Any, old: Json) -> bool:
        # awx.awx sends two read-only fields with the only value that they can have.
        return (kind, name, value) in (
            ("credential_types", "managed", False),
            ("workflow_job_template_nodes", "type", "workflow_job_template_node"),
        )

    def _pointer(self, kind: str, name: str, value: t.Any) -> None:
        if name not in POINTS_TO or value is None:
            return
        if not any(value in self.tables[table] for table in POINTS_TO[name]):
            raise Refused({name: [f'Invalid pk "{value}" - object does not exist.']})

    def _rules(self, kind: str, whole: Json, key: int) -> None:
        same = UNIQUE.get(kind, ("organization", "name"))
        for other, entry in self.tables[kind].items():
            if other != key and all(entry.get(name) == whole.get(name) for name in same):
                names = " and ".join(name.replace("_", " ").capitalize() for name in same)
                raise Refused({"__all__": [f"{kind} with this {names} already exists."]})
        check = getattr(self, f"_rules_of_{kind}", None)
        if check:
            check(whole, key)

    def _kind_of(self, credential: int) -> Json:
        return self.tables["credential_types"][self.tables["credentials"][credential]["credential_type"]]

    def _rules_of_credential_types(self, whole: Json, key: int) -> None:
        rules.credential_type(whole, TABLE["environment_that_credentials_may_not_set"])
        whole.setdefault("managed", False)

    def _rules_of_credentials(self, whole: Json, key: int) -> None:
        owners = [name for name in ("organization", "user", "team") if whole.get(name)]
        if len(owners) != 1:
            raise Refused({"detail": ["Missing 'user', 'team', or 'organization'."]})
        kind = self.tables["credential_types"][whole["credential_type"]]
        fields = kind["inputs"].get("fields", [])
        rules.credential_inputs(whole["inputs"], fields, kind["inputs"].get("required", []), kind.get("managed", False))
        secret = {
            field["id"] for field in fields if field.get("secret") or field["id"] in ("password", "token", "secret")
        }
        # An object that is made takes the next number.
        self.secrets[key or self._last + 1] = {name: value for name, value in whole["inputs"].items() if name in secret}
        whole["inputs"] = {
            name: "$encrypted$" if name in secret and value else value for name, value in whole["inputs"].items()
        }

    def _rules_of_execution_environments(self, whole: Json, key: int) -> None:
        if not rules.IMAGE.fullmatch(whole["image"]):
            raise Refused({"image": [f"The container image name {whole['image']} is not valid"]})
        if whole.get("credential") and self._kind_of(whole["credential"])["kind"] != "registry":
            raise Refused(
                {"credential": ["Only Container Registry credentials can be associated with an Execution Environment"]}
            )

    def _rules_of_projects(self, whole: Json, key: int) -> None:
        if not whole.get("organization"):
            raise ignored("a project without an organization")
        if whole["scm_type"] == "git" and not whole["scm_url"]:
            raise Refused({"scm_url": ["SCM URL is required."]})
        if whole["scm_type"] and not rules.URL.fullmatch(whole["scm_url"]):
            raise ignored(f"scm_url {whole['scm_url']}")
        if not whole["scm_type"] and whole["scm_update_on_launch"]:
            raise Refused({"scm_update_on_launch": ["Update options must be set to false for manual projects."]})
        if whole.get("credential") and self._kind_of(whole["credential"])["kind"] != "scm":
            raise Refused({"credential": ["Credential kind must be 'scm'."]})

    def _rules_of_inventories(self, whole: Json, key: int) -> None:
        if whole["kind"] == "" and whole.get("host_filter"):
            raise ignored("host_filter of a plain inventory")
        if whole["kind"] == "smart" and not whole.get("host_filter"):
            raise Refused({"host_filter": ["Smart inventories must specify host_filter"]})
        if whole["kind"] == "constructed":
            raise Refused({"kind": ["constructed inventories are made at constructed_inventories"]})

    def _rules_of_inventory_sources(self, whole: Json, key: int) -> None:
        if whole["source_vars"]:
            rules.mapping("source_vars", whole["source_vars"])
        credential = whole.get("credential")
        if credential is not None and credential not in self.tables["credentials"]:
            raise Refused({"credential": [f'Invalid pk "{credential}" - object does not exist.']})
        kind = self._kind_of(credential) if credential else {}
        if whole["source"] == "scm":
            self._source_in_project(whole, kind)
            return
        if not credential:
            raise Refused({"credential": ["Credential is required for a cloud source."]})
        if kind.get("namespace") != {"ec2": "aws"}.get(whole["source"], whole["source"]):
            text = (
                f"Cloud-based inventory sources (such as {whole['source']}) require credentials "
                f"for the matching cloud service."
            )
            raise Refused({"credential": [text]})
        if whole["source_path"] or whole.get("source_project"):
            raise ignored(f"source_path of a source {whole['source']}")

    def _source_in_project(self, whole: Json, kind: Json) -> None:
        if not whole.get("source_project"):
            raise Refused({"source_project": ["Project required for scm type sources."]})
        if kind.get("kind") in ("vault", "insights"):
            raise Refused(
                {"credential": ["Credentials of type insights and vault are disallowed for scm inventory sources."]}
            )
        if kind.get("kind") == "ssh":
            raise ignored("a Machine credential of an inventory source: no key is injected")
        path = whole["source_path"]
        project = self.repositories.get(self.tables["projects"][whole["source_project"]]["scm_url"])
        if path.startswith("/") or ".." in path.split("/") or project is None or not (project / path).exists():
            raise ignored(f"source_path {path}, which is not in the project")

    def _rules_of_job_templates(self, whole: Json, key: int) -> None:
        if not whole.get("project"):
            raise Refused({"project": ["Job Templates must have a project assigned."]})
        project = self.tables["projects"][whole["project"]]
        if not whole["playbook"]:
            raise Refused({"playbook": ["Must select playbook for project."]})
        if not project["allow_override"] and whole["playbook"] not in project.get("playbook_files", []):
            raise Refused({"playbook": ["Playbook not found for project."]})
        if not whole.get("inventory") and not whole["ask_inventory_on_launch"]:
            raise Refused({"inventory": ["You must either set a default value or ask to prompt on launch."]})
        if (whole["ask_scm_branch_on_launch"] or whole["scm_branch"]) and not project["allow_override"]:
            raise Refused({"ask_scm_branch_on_launch": ["Project does not allow overriding branch."]})
        if whole["forks"] > 200:
            raise Refused({"forks": ["Maximum number of forks (200) exceeded."]})
        if whole["job_slice_count"] == 0:
            raise ignored("job_slice_count 0")
        whole["organization"] = project["organization"]

    def _rules_of_notification_templates(self, whole: Json, key: int) -> None:
        known = TABLE["notification_configuration"][whole["notification_type"]]
        config = whole["notification_configuration"]
        types = {"string": str, "password": str, "int": int, "bool": bool, "list": list, "object": dict}
        for name in config:
            if name not in known:
                raise ignored(f"notification_configuration {name}")
        for name, spec in known.items():
            if name not in config and "default" not in spec:
                raise Refused({"__all__": [f"Missing required fields for Notification Configuration: ['{name}']."]})
            config.setdefault(name, spec.get("default"))
            if not isinstance(config[name], types[spec["type"]]):
                raise Refused({"__all__": [f"Configuration field '{name}' incorrect type, expected {spec['type']}."]})
            if spec["type"] == "password" and config[name]:
                config[name] = "$encrypted$"

    def _rules_of_schedules(self, whole: Json, key: int) -> None:
        rules.schedule(whole["rrule"])
        target = next(table for table in JOBS if whole["unified_job_template"] in self.tables[table])
        if target == "projects" and not self.tables[target][whole["unified_job_template"]]["scm_type"]:
            raise Refused({"unified_job_template": ["Manual Project cannot have a schedule set."]})
        self._prompts(whole, required=True)

    def _rules_of_workflow_job_template_nodes(self, whole: Json, key: int) -> None:
        if not whole["identifier"]:
            raise Refused({"identifier": ["This field may not be blank."]})
        if whole.get("unified_job_template") == whole["workflow_job_template"]:
            raise ignored("a node that starts its own workflow")
        if whole.get("unified_job_template") in self.tables["job_templates"]:
            self._prompts(whole, required=False)

    def _prompts(self, whole: Json, required: bool) -> None:
        """Refuse what the template does not ask for."""
        key = whole["unified_job_template"]
        template = {**self.tables["job_templates"], **self.tables["workflow_job_templates"]}.get(key, {})
        for field, ask in PROMPTED.items():
            if whole.get(field) not in (None, "") and not template.get(ask):
                raise Refused({field: ["Field is not configured to prompt on launch."]})
        questions = {question["variable"]: question for question in self.surveys.get(key, {}).get("spec", [])}
        data = whole.get("extra_data") or {}
        extra = sorted(set(data) - set(questions))
        if extra and not template.get("ask_variables_on_launch"):
            text = (
                f"Variables {', '.join(extra)} are not allowed on launch. Check the Prompt on "
                f"Launch setting on the Job Template to include Extra Variables."
            )
            raise Refused({"extra_data": [text]})
        self._answers(questions, data, required)

    @staticmethod
    def _answers(questions: t.Mapping[str, Json], data: Json, required: bool) -> None:
        problems = [rules.answer_problem(question, data[name]) for name, question in questions.items() if name in data]
        if required:
            problems += [
                f"'{name}' value missing"
                for name, question in questions.items()
                if question["required"] and name not in data
            ]
        if any(problems):
            raise Refused({"variables_needed_to_start": [text for text in problems if text]})

    # What is more than fields.

    def _begin(self, project: int) -> Json:
        self._last += 1
        self.updates[self._last] = {"project": project, "status": "running"}
        self.tables["projects"][project].update(
            _update=self._last, scm_revision=self.tables["projects"][project].get("scm_revision", "")
        )
        return self._shown_update(self._last)

    def _shown_update(self, key: int) -> Json:
        update = self.updates[key]
        project = self.tables["projects"][update["project"]]
        done = update["status"] in ("successful", "failed")
        return {
            "id": key,
            "url": f"{ROOT}project_updates/{key}/",
            "status": update["status"],
            "failed": update["status"] == "failed",
            "finished": done,
            "event_processing_finished": done,
            "scm_revision": project.get("scm_revision", ""),
        }

    def _update(self, key: int) -> Json:
        if key not in self.updates:
            raise Refused({"detail": "Not found."}, 404)
        shown = self._shown_update(key)  # at the first look it still runs
        if not shown["finished"]:
            self._end_update(key)
        return shown

    def _end_update(self, key: int) -> None:
        update = self.updates[key]
        project = self.tables["projects"][update["project"]]
        project.pop("_update", None)
        folder = self.repositories.get(project["scm_url"])
        requirements = folder is not None and (folder / "collections/requirements.yml").is_file()
        galaxy = self.links.get(("organizations", project["organization"], "galaxy_credentials"))
        # AWX skips the requirements without a word here; the jobs fail later.
        if folder is None or (requirements and not galaxy):
            update["status"] = "failed"
            return
        update["status"] = "successful"
        project.update(playbook_files=playbooks(folder), scm_revision="0" * 40)

    def _approval(self, node: int, body: t.Any) -> Json:
        spec = ENDPOINTS["workflow_job_template_nodes/N/create_approval_template"]["fields"]
        entry = self.tables["workflow_job_template_nodes"][node]
        if entry.get("unified_job_template"):
            raise ignored("a template of a node that another one replaces")
        for name, value in body.items():
            if name not in spec:
                raise ignored(f"approval: field {name}")
            rules.plain(name, value, spec[name], ())
        if not body.get("name"):
            raise Refused({"name": ["This field is required."]})
        if body.get("timeout", 0) < 0:
            raise ignored("a negative timeout")
        key = self._store("workflow_approval_templates", {"description": "", "timeout": 0, **body})
        entry["unified_job_template"] = key
        return self.show("workflow_approval_templates", key)

    @staticmethod
    def _end(what: str) -> str:
        if what in LINKS:
            return "workflow_job_template_nodes"
        if what.startswith("notification_templates"):
            return "notification_templates"
        return "credentials" if what.endswith("credentials") else what

    def _associate(self, kind: str, key: int, what: str, body: t.Any) -> None:
        if set(body) - {"id", "disassociate"} or "id" not in body:
            raise Refused({"msg": '"id" field must be an integer.'})
        end, table = body["id"], self._end(what)
        if end not in self.tables[table]:
            raise Refused({"detail": f"{table} matching query does not exist."})
        ids = self.links.setdefault((kind, key, what), [])
        if body.get("disassociate"):
            self.links[(kind, key, what)] = [one for one in ids if one != end]
            return
        if end in ids:
            return
        if what in LINKS:
            self._link(key, what, end)
        elif what == "galaxy_credentials" and self._kind_of(end)["kind"] != "galaxy":
            raise Refused({"msg": "Credential must be a Galaxy credential, not " + self._kind_of(end)["name"] + "."})
        elif what == "credentials":
            self._attach(end, ids)
        ids.append(end)

    def _attach(self, credential: int, ids: list[int]) -> None:
        kind = self._kind_of(credential)
        if kind["kind"] in ("scm", "galaxy", "registry"):
            raise Refused({"error": f"Cannot assign a Credential of kind `{kind['kind']}`."})
        if kind["kind"] != "vault" and any(self._kind_of(other)["name"] == kind["name"] for other in ids):
            raise Refused({"error": f"Cannot assign multiple {kind['name']} credentials."})

    def _link(self, parent: int, what: str, child: int) -> None:
        nodes, kind = self.tables["workflow_job_template_nodes"], "workflow_job_template_nodes"
        if nodes[parent]["workflow_job_template"] != nodes[child]["workflow_job_template"]:
            raise Refused({"detail": "You do not have permission to perform this action."}, 403)
        if any(child in self.links.get((kind, parent, other), []) for other in LINKS if other != what):
            raise Refused({"Error": "Relationship not allowed."})
        seen, left = set(), [child]
        while left:  # AWX finds a loop only from a root; here none is taken
            node = left.pop()
            if node == parent:
                raise Refused({"Error": "Cycle detected."})
            if node not in seen:
                seen.add(node)
                left += [end for link in LINKS for end in self.links.get((kind, node, link), [])]

    def _launch(self, kind: str, key: int, body: Json) -> Json:
        template = self.tables[kind][key]
        if kind == "job_templates" and template["survey_enabled"] and key not in self.surveys:
            raise ignored("survey_enabled without a survey")
        data = body.get("extra_vars") or {}
        questions = (
            {one["variable"]: one for one in self.surveys.get(key, {}).get("spec", [])}
            if template["survey_enabled"]
            else {}
        )
        self._answers(questions, data, required=True)
        extra = sorted(set(data) - set(questions))
        if extra and not template["ask_variables_on_launch"]:
            raise ignored(f"extra_vars {extra}, for which nobody asks")
        self._last += 1
        return {"id": self._last, "status": "pending", "ignored_fields": {}}


class Server:
    """The stand-in behind HTTP, for one test."""

    def __init__(self, awx: Awx) -> None:
        state = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                size = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(size)
                status, document = 401, t.cast(t.Any, {"detail": "Authentication credentials were not provided."})
                if state.known(self.headers.get("Authorization", "")):
                    with state.lock:
                        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                        status, document = awx.handle(self.command, url.path, query, json.loads(raw) if raw else None)
                body = b"" if document is None else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("X-API-Product-Name", "AWX")
                self.send_header("X-API-Product-Version", TABLE["awx"]["after_release"])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

            def log_message(self, *args: t.Any) -> None:
                """Write nothing."""

        self.awx, self.lock = awx, threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def known(self, header: str) -> bool:
        kind, dummy, value = header.partition(" ")
        if kind == "Bearer":
            return value in self.awx.tokens.values()
        return kind == "Basic" and base64.b64decode(value).decode() == f"admin:{self.awx.password}"

    def __enter__(self) -> Server:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._server.server_close()
