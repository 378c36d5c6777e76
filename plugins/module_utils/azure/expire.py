# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook that deletes a cluster on its day, in Azure Automation: what belongs to it is decided by module teardown.

It runs in a sandbox of Azure, in Python 3.8 or later with the standard library alone, as the identity of the Automation
account, which has rights on the cluster's resource groups and nowhere else. Only standard output is kept there.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError, error_text, explain
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import TeardownError

Json = t.Dict[str, t.Any]
_OPENER = urllib.request.build_opener()
_TRIES = 5
_AGAIN = (408, 429, 500, 502, 503, 504)
_TOKEN_SECONDS = 1200
# Azure ends a job after three hours; what was begun by then goes on without it.
_PAUSE, _PATIENCE = 15.0, 2.5 * 3600


class Arm:
    """The resource manager, as the identity of the Automation account; the calls of `teardown.ArmReader`."""

    def __init__(
        self, subscription: str, manager: str, environ: t.Mapping[str, str], pause: t.Callable[[float], None]
    ) -> None:
        self.subscription, self.manager, self.pause = subscription, manager.rstrip("/"), pause
        self.endpoint, self.secret = environ.get("IDENTITY_ENDPOINT", ""), environ.get("IDENTITY_HEADER", "")
        self._token, self._until = "", 0.0
        if not self.endpoint:
            raise AzureError("IDENTITY_ENDPOINT is not set: the Automation account has no identity, or this is no job")

    def send(self, method: str, path: str, version: str, query: t.Mapping[str, str] | None = None) -> tuple[int, Json]:
        """Send one request; throttling, failures of Azure and lost connections are tried again."""
        words = urllib.parse.urlencode({**({"api-version": version} if version else {}), **(query or {})})
        url = path if path.startswith("https://") else self.manager + urllib.parse.quote(path)
        url += f"{'&' if '?' in url else '?'}{words}" if words else ""
        last, wait = "", 2.0
        for tried in range(_TRIES):
            if tried:
                self.pause(wait)
            headers = {"Authorization": f"Bearer {self.token()}"}
            request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - the manager's own URL
            try:
                with _OPENER.open(request, timeout=120) as answer:
                    return answer.status, _document(answer.read())
            except urllib.error.HTTPError as exc:
                document = _document(exc.read())
                if exc.code not in _AGAIN:
                    return exc.code, document
                last, wait = f"answered {exc.code}: {error_text(document)}", _seconds(exc.headers.get("Retry-After"))
            except OSError as exc:
                last, wait = str(exc), 10.0
        raise AzureError(explain(f"{method} {path}: {last}"))

    def token(self) -> str:
        """Return a token of the account's identity; a job may outlive one."""
        if time.monotonic() >= self._until:
            words = urllib.parse.urlencode({"resource": f"{self.manager}/"})
            url = f"{self.endpoint}{'&' if '?' in self.endpoint else '?'}{words}"
            headers = {"X-IDENTITY-HEADER": self.secret, "Metadata": "True"}
            request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the sandbox's own URL
            try:
                with _OPENER.open(request, timeout=60) as answer:
                    self._token = json.load(answer)["access_token"]
            except (OSError, ValueError, KeyError) as exc:
                raise AzureError(f"the sandbox gives no token for {self.manager}: {exc}") from exc
            self._until = time.monotonic() + _TOKEN_SECONDS
        return self._token

    def get(self, path: str, version: str) -> Json | None:
        """Return a resource, or None where there is none."""
        status, document = self.send("GET", path, version)
        return None if status == 404 else _good("GET", path, status, document)

    def items(self, path: str, version: str, **query: str) -> list[Json]:
        """Return the entries of all pages of a listing."""
        records: list[Json] = []
        status, page = self.send("GET", path, version, query)
        while status != 404:
            _good("GET", path, status, page)
            records += page.get("value") or []
            if not page.get("nextLink"):
                break
            status, page = self.send("GET", page["nextLink"], "")
        return records

    def delete(self, path: str, version: str) -> bool:
        """Have Azure delete something; it goes on by itself. False where it did not exist."""
        status, document = self.send("DELETE", path, version)
        if status in (204, 404):
            return False
        _good("DELETE", path, status, document)
        return True


def _document(raw: bytes) -> Json:
    try:
        document = json.loads(raw or b"{}")
    except ValueError:
        return {"error": {"message": raw[:500].decode(errors="replace")}}
    return document if isinstance(document, dict) else {"value": document}


def _good(method: str, path: str, status: int, document: Json) -> Json:
    if status >= 400:
        raise AzureError(explain(f"{method} {path} was answered {status}: {error_text(document)}"))
    return document


def _seconds(text: str | None) -> float:
    """Read Retry-After; one that is missing or a date waits as long as a short one."""
    try:
        return min(max(float(text or ""), 0.01), 120.0)
    except ValueError:
        return 10.0


class Expiry:
    """The deletion of one cluster; ``home`` is the group of the Automation account, ``tell`` prints a line."""

    def __init__(self, arm: Arm, request: teardown.TeardownRequest, home: str, tell: t.Callable[[str], None]) -> None:
        self.arm, self.request, self.home, self.tell = arm, request, home.lower(), tell

    def run(self, now: datetime.datetime) -> None:
        """Delete the cluster's groups when all of them are due, and then what would be left elsewhere."""
        observed, self.request = teardown.read_subscription(self.arm, self.request, narrow=True)
        own = teardown.going_groups(observed.groups, self.request)
        plan = teardown.plan(observed, self.request)
        for note in plan.notes:
            self.tell(note)
        if not own:
            self.tell(f"Nothing of {self.request.cluster} is there.")
            return
        for group in own:
            text = group.tags.get(teardown.TAG, "")
            if not text or teardown.read_time(text) > now:
                self.tell(
                    f"{self.request.cluster} stays: {group.name} {f'is due on {text}' if text else 'has no day'}."
                )
                return
        if plan.refusals:
            raise TeardownError(f"Nothing was deleted. {'; '.join(plan.refusals)}")
        if plan.locks:
            raise TeardownError(f"Nothing was deleted. Locked by {', '.join(plan.locks)}: run destroy.yml")
        self.delete_groups([group for group in plan.groups if group.lower() != self.home])
        self.clean(plan)
        # The group that this runs in goes last: nobody is there to see it end.
        for identifier in plan.groups:
            if identifier.lower() == self.home:
                self.tell(f"Deleting {identifier}, with this job")
                self.arm.delete(identifier, teardown.RESOURCES)

    def delete_groups(self, groups: t.Sequence[str]) -> None:
        """Have all groups deleted and wait for them; one that Azure does not delete fails the job, and home stays."""
        failed = []
        for group in groups:
            self.tell(f"Deleting {group}")
            try:
                self.arm.delete(group, teardown.RESOURCES)
            except AzureError as exc:
                if "ResourceGroupBeingDeleted" not in str(exc):
                    failed.append(f"{group}: {exc}")
        waiting = {group.lower() for group in groups} - {text.partition(":")[0].lower() for text in failed}
        passed = 0.0
        while waiting and passed < _PATIENCE:
            self.arm.pause(_PAUSE)
            passed += _PAUSE
            # The right to read a group goes with it, but a listing only leaves out what may not be read.
            path = f"/subscriptions/{self.arm.subscription}/resourcegroups"
            there = {entry["id"].lower(): entry for entry in self.arm.items(path, teardown.RESOURCES)}
            waiting &= set(there)
            kept = {group for group in waiting if _state(there[group]) != "Deleting"}
            failed += [
                f"{group} is still there, {_state(there[group])}: see its activity log" for group in sorted(kept)
            ]
            waiting -= kept
        failed += [f"{group} is still being deleted after {_PATIENCE / 3600:g} h" for group in sorted(waiting)]
        if failed:
            raise TeardownError("Not everything was deleted. " + "; ".join(failed))

    def clean(self, plan: teardown.TeardownPlan) -> None:
        """Delete what lies outside of the groups, as far as the identity may; destroy.yml finds the rest."""
        assignments: list[str] = []
        path = f"/subscriptions/{self.arm.subscription}/providers/Microsoft.Authorization/roleAssignments"
        for principal in sorted(self.request.principals):
            try:
                listed = self.arm.items(path, teardown.ASSIGNMENTS, **{"$filter": f"principalId eq '{principal}'"})
                assignments += [str(entry["id"]) for entry in listed]
            except AzureError as exc:
                self.tell(f"Role assignments of {principal} are not looked for, destroy.yml deletes them: {exc}")
        for message in self.best_effort("role assignment", assignments) + self.best_effort("resource", plan.resources):
            self.tell(f"Left for destroy.yml: {message}")

    def best_effort(self, what: str, identifiers: t.Iterable[str]) -> list[str]:
        """Delete one by one; return what could not be deleted, and why."""
        left = []
        for identifier in identifiers:
            try:
                self.arm.delete(identifier, teardown.version(self.arm, identifier))
                self.tell(f"Deleted {what} {identifier}")
            except (AzureError, TeardownError) as exc:
                left.append(f"{what} {identifier}: {exc}")
        return left


def _state(group: t.Mapping[str, t.Any]) -> str:
    return str((group.get("properties") or {}).get("provisioningState") or "unknown")


def _say(line: str) -> None:
    """Write a line to the job's output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(settings: t.Mapping[str, str]) -> None:
    """Run as a job of Azure Automation; an exception is what fails one."""
    arm = Arm(settings["subscription"], settings["manager"], os.environ, time.sleep)
    request = teardown.TeardownRequest(settings["cluster"], settings["nodes_cluster"])
    now = datetime.datetime.now(datetime.timezone.utc)
    try:
        Expiry(arm, request, settings["home"], _say).run(now)
    except (AzureError, TeardownError) as exc:
        _say(f"ERROR: {exc}")
        raise
