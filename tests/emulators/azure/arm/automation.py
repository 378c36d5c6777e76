# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Automation: accounts, runbooks with their draft, schedules, what links the two, and jobs, which run."""

from __future__ import annotations

import datetime
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import typing as t
import uuid

from . import access, identity, operations
from .authorization import GUID, now
from .behaviour import Behaviour, Call, register
from .faults import error
from .http import ArmError, Request, Response
from .managed import assign
from .routes import RG, Context, route
from .state import State

A = "Microsoft.Automation/automationAccounts"
RUNBOOK, SCHEDULE, LINK = f"{A}/runbooks", f"{A}/schedules", f"{A}/jobSchedules"
ENVIRONMENT, JOB = f"{A}/runtimeEnvironments", f"{A}/jobs"
# What Azure makes by itself has these names; of its own one may choose the versions below.
SYSTEM = ("PowerShell-5.1", "PowerShell-7.2", "Python-3.8", "Python-3.10")
VERSIONS = {"PowerShell": ("5.1", "7.2", "7.4"), "Python": ("3.8", "3.10")}
WITH_ENVIRONMENTS = ("2024-10-23", "2023-05-15-preview")


@register(A)
class Account(Behaviour):
    def prepare(self, call: Call) -> None:
        call.new["properties"] = {"publicNetworkAccess": True, "disableLocalAuth": False, "encryption": None,
                                  **(call.old or {}).get("properties", {}), **call.properties}  # fmt: skip
        if not (call.properties.get("sku") or {}).get("name"):
            raise ArmError(400, "BadRequest", "The account property sku is missing: Basic or Free.")
        call.properties.update({"state": "Ok", "creationTime": now(), "lastModifiedTime": now()})
        assign(call)

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """An account goes with all it holds."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        state.directory.pop((resource.get("identity") or {}).get("principalId"), None)


@register(RUNBOOK)
class Runbook(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        before = (call.old or {}).get("properties", {})
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,62}", call.name):
            raise ArmError(400, "BadRequest", f"The runbook name {call.name} is invalid.")
        if before and call.properties["runbookType"] != before["runbookType"]:
            raise ArmError(400, "BadRequest", "The runbook type cannot be changed.")
        self._environment(call)
        call.new["location"] = call.new.get("location") or call.group["location"]
        defaults = {"logVerbose": False, "logProgress": False, "logActivityTrace": 0, "jobCount": 0, "parameters": {}}
        call.new["properties"] = {**defaults, "creationTime": now(), "state": "New", **before, **call.properties}
        call.properties["lastModifiedTime"] = now()
        if call.properties.get("publishContentLink"):
            call.properties["state"] = "Published"

    @staticmethod
    def _environment(call: Call) -> None:
        """Only some api-versions know runtime environments, and with them the type Python."""
        kind, name = call.properties["runbookType"], call.properties.get("runtimeEnvironment")
        known = call.request.version in WITH_ENVIRONMENTS
        if (name or kind == "Python") and not known:
            raise ArmError(400, "BadRequest", f"{call.request.version} knows no runtimeEnvironment and no type Python.")
        if kind == "Python" and not name:
            raise ArmError(400, "BadRequest", "A runbook of type Python needs a runtimeEnvironment.")
        if not name:
            return
        found = call.state.get(f"{call.target.parent}/runtimeEnvironments/{name}")
        language = found["properties"]["runtime"]["language"] if found else name.partition("-")[0]
        if not found and name not in SYSTEM:
            raise ArmError(404, "NotFound", f"The runtime environment {name} was not found in the account.")
        if language != kind:
            raise ArmError(400, "BadRequest", f"The runtime environment {name} is not for runbooks of type {kind}.")

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """Its links go with it."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        unlink(state, resource, "runbook")


@register(ENVIRONMENT)
class Environment(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        runtime, before = call.properties["runtime"], (call.old or {}).get("properties", {}).get("runtime")
        if runtime["version"] not in VERSIONS[runtime["language"]]:
            raise ArmError(
                400, "BadRequest", f"The runtime {runtime['language']} {runtime['version']} is not supported."
            )
        if before and before != runtime:
            raise ArmError(400, "BadRequest", "Language and version of a runtime environment cannot be changed.")
        call.properties.setdefault("defaultPackages", {})

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """It goes with its account."""


def unlink(state: State, resource: dict[str, t.Any], part: str) -> None:
    account = resource["id"].rsplit("/", 2)[0]
    for one in state.under(account):
        if one["type"] == LINK and one["properties"][part]["name"].lower() == resource["name"].lower():
            state.drop(one["id"])


def moment(text: str) -> datetime.datetime:
    """Read a time with its offset."""
    try:
        found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ArmError(400, "BadRequest", f"The time {text!r} is not ISO 8601.") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)


@register(SCHEDULE)
class Schedule(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        said, before = call.properties, (call.old or {}).get("properties", {})
        start = moment(said["startTime"])
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)
        if start < soon and said["startTime"] != before.get("startTime"):
            message = (
                "The start time of the schedule must be at least 5 minutes after the time you create the schedule."
            )
            raise ArmError(400, "BadRequest", message)
        if said["frequency"] != "OneTime" and not said.get("interval"):
            raise ArmError(400, "BadRequest", "A schedule that recurs needs an interval.")
        end = "9999-12-31T23:59:59.9999999+00:00"
        said.setdefault("expiryTime", said["startTime"] if said["frequency"] == "OneTime" else end)
        said.setdefault("timeZone", "Etc/UTC")
        said.setdefault("isEnabled", True)
        said.update({"nextRun": said["startTime"], "creationTime": before.get("creationTime", now())})
        said["lastModifiedTime"] = now()

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """Its links go with it."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        unlink(state, resource, "schedule")


@register(LINK)
class Link(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        account, said = call.target.parent, call.properties
        if not re.fullmatch(GUID, call.name):
            raise ArmError(400, "BadRequest", f"The job schedule id {call.name} is to be a GUID.")
        if call.old:
            raise ArmError(409, "Conflict", "A job schedule with this id already exists; it cannot be updated.")
        for part in ("runbook", "schedule"):
            name = said[part].get("name")
            found = call.state.get(f"{account}/{part}s/{name}") if name else None
            if not found:
                raise ArmError(404, "NotFound", f"The {part} {name} was not found in the account.")
            if part == "runbook" and found["properties"]["state"] != "Published":
                raise ArmError(400, "BadRequest", f"The runbook {name} is not published.")
        for other in call.state.under(account):
            if other["type"] == LINK and all(
                other["properties"][part] == said[part] for part in ("runbook", "schedule")
            ):
                raise ArmError(409, "Conflict", "The runbook is linked to this schedule already.")
        said["jobScheduleId"] = call.name
        # Azure keeps the names of parameters in lower case.
        said["parameters"] = {key.lower(): value for key, value in (said.get("parameters") or {}).items()}


def _runbook(context: Context, path: str) -> dict[str, t.Any]:
    found = context.state.get(path)
    if not found:
        raise error("ResourceNotFound", resource=f"{RUNBOOK}/{path.rsplit('/', 1)[-1]}", group=context.words["group"])
    access.allow(context.state, context.request, f"{RUNBOOK}/write", path)
    access.unlocked(context.state, path, "write")
    return found


BOOK = f"{RG}/providers/{A}/[^/]+/runbooks/[^/]+"


@route("PUT", f"{BOOK}/draft/content", RUNBOOK)
def _draft(context: Context) -> Response:
    path = context.request.path.rsplit("/", 2)[0]
    found = _runbook(context, path)
    if not context.request.raw:
        raise ArmError(400, "BadRequest", "The content of the draft is missing.")
    context.state.hidden_of(path)["draft"] = context.request.raw.decode()
    found["properties"]["state"] = "New" if found["properties"]["state"] == "New" else "Edit"
    made = operations.begin(context.state, "nothing", path)
    return Response(202, None, operations.headers(context.state, context.request, made, "location"))


@route("POST", f"{BOOK}/(?:draft/)?publish", RUNBOOK)
def _publish(context: Context) -> Response:
    path = re.sub("/(draft/)?publish$", "", context.request.path, flags=re.IGNORECASE)
    found, hidden = _runbook(context, path), context.state.hidden_of(path)
    if "draft" not in hidden and found["properties"]["state"] == "New":
        raise ArmError(400, "BadRequest", f"The runbook {found['name']} has no draft to publish.")
    hidden["content"] = hidden.pop("draft", hidden.get("content", ""))
    made = operations.begin(context.state, "published", path)
    return Response(202, None, operations.headers(context.state, context.request, made, "location"))


@route("GET", f"{BOOK}/(?P<which>draft/)?content", RUNBOOK)
def _content(context: Context) -> Response:
    path = re.sub("/(draft/)?content$", "", context.request.path, flags=re.IGNORECASE)
    kept = context.state.hidden_of(path).get("draft" if context.words["which"] else "content")
    if kept is None:
        raise ArmError(404, "NotFound", "The runbook has no such content.")
    return Response(200, kept, {"Content-Type": "text/powershell"})


@operations.effect("nothing")
def _nothing(state: State, operation: dict[str, t.Any]) -> None:
    """A draft is there at once."""


@operations.effect("published")
def _published(state: State, operation: dict[str, t.Any]) -> None:
    found = state.get(operation["resource"])
    if found:
        found["properties"]["state"] = "Published"


# Jobs: the published script runs here, with the identity of its account and the rights that it has.


@register(JOB)
class Job(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        name = (call.properties.get("runbook") or {}).get("name")
        found = call.state.get(f"{call.target.parent}/runbooks/{name}")
        if call.old:
            raise ArmError(409, "Conflict", f"The job {call.name} exists already.")
        if not found or found["properties"]["state"] not in ("Published", "Edit"):
            raise ArmError(404, "NotFound", f"The runbook {name} was not found, or it is not published.")
        call.properties.update({"jobId": str(uuid.uuid4()), "status": "New", "creationTime": now()})

    def stored(self, call: Call) -> None:
        threading.Thread(target=_work, args=(call.state, call.new["id"]), daemon=True).start()

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """It goes with its account."""


def fire(state: State, schedule: str) -> list[str]:
    """Do what the service does when a schedule's time has come; return the ids of the jobs that were made."""
    made = []
    for link in state.of_type(LINK):
        if link["properties"]["schedule"]["name"] != schedule:
            continue
        account, name = link["id"].rsplit("/", 2)[0], str(uuid.uuid4())
        job = {"id": f"{account}/jobs/{name}", "name": name, "type": JOB, "properties": {
            "jobId": name, "status": "New", "creationTime": now(), "runbook": dict(link["properties"]["runbook"]),
            "parameters": dict(link["properties"]["parameters"])}}  # fmt: skip
        state.put(job)
        made.append(job["id"])
        threading.Thread(target=_work, args=(state, job["id"]), daemon=True).start()
    return made


def _work(state: State, path: str) -> None:
    """Run one job in a sandbox: no directory, no settings but the identity's. Only standard output is kept."""
    with state.lock:
        job = state.get(path)
        if job is None:
            return
        account, book = path.rsplit("/", 2)[0], job["properties"]["runbook"]["name"]
        found = state.get(f"{account}/runbooks/{book}") or {}
        kind, script = found["properties"]["runbookType"], state.hidden_of(found["id"])["content"]
        secret = secrets.token_urlsafe(24)
        state.data.setdefault("sandboxes", {})[secret] = account.lower()
        job["properties"].update({"status": "Running", "startTime": now()})
    around = state.surroundings
    kept = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    place = {"IDENTITY_ENDPOINT": f"{around['metadata']}/automation/token", "IDENTITY_HEADER": secret}
    environment = {"PATH": os.defpath, **{name: around[name] for name in kept}, **place}
    if kind != "Python":
        status, output, problem = "Failed", "", f"this service runs Python alone, and {book} is {kind}"
    else:
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run([sys.executable, "-s", "-"], input=script, cwd=directory, env=environment, text=True,
                                  capture_output=True, check=False)  # fmt: skip
        status, output = "Failed" if done.returncode else "Completed", done.stdout
        problem = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    with state.lock:
        state.data["sandboxes"].pop(secret, None)
        said = {"status": status, "endTime": now(), "exception": problem}
        state.data.setdefault("jobs", []).append({"id": path, "output": output, **said})
        if state.get(path):
            job["properties"].update(said)
        state.save()


def token(state: State, request: Request) -> Response:
    """GET IDENTITY_ENDPOINT, as a job asks for a token of its account's identity."""
    account = state.data.get("sandboxes", {}).get(request.headers.get("X-IDENTITY-HEADER", ""))
    if not account or request.headers.get("Metadata", "").lower() != "true" or not request.query.get("resource"):
        return Response(401, {"error": "invalid_request", "error_description": "not a sandbox of this service"})
    principal = ((state.get(account) or {}).get("identity") or {}).get("principalId")
    if not principal:
        return Response(400, {"error": "identity_not_found"})
    return identity.for_job(state, principal, request.query["resource"])


@route("GET", f"{RG}/providers/{A}/[^/]+/jobs/[^/]+/output", JOB)
def _output(context: Context) -> Response:
    path = context.request.path.rsplit("/", 1)[0].lower()
    access.allow(context.state, context.request, f"{JOB}/output/read", path)
    ended = [one for one in context.state.data.get("jobs", []) if one["id"].lower() == path]
    return Response(200, ended[-1]["output"] if ended else "", {"Content-Type": "text/plain"})
