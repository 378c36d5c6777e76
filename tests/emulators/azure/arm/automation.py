# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Automation: accounts, runbooks with their draft, schedules, and what links the two."""

from __future__ import annotations

import datetime
import re
import typing as t

from . import access, operations
from .authorization import GUID, now
from .behaviour import Behaviour, Call, register
from .faults import error
from .http import ArmError, Response
from .managed import assign
from .routes import RG, Context, route
from .state import State

A = "Microsoft.Automation/automationAccounts"
RUNBOOK, SCHEDULE, LINK = f"{A}/runbooks", f"{A}/schedules", f"{A}/jobSchedules"


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
        call.new["location"] = call.new.get("location") or call.group["location"]
        defaults = {"logVerbose": False, "logProgress": False, "logActivityTrace": 0, "jobCount": 0, "parameters": {}}
        call.new["properties"] = {**defaults, "creationTime": now(), "state": "New", **before, **call.properties}
        call.properties["lastModifiedTime"] = now()
        if call.properties.get("publishContentLink"):
            call.properties["state"] = "Published"

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """Its links go with it."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        unlink(state, resource, "runbook")


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
