# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One Azure account of CycleCloud at an ARM emulator: tokens as in Azure, requests, and what becomes of them.

`emulator.json` in CycleCloud's home names it: {"url", "ca", "metadata": "http://…" (tokens of its VM), "vm"}.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from .store import Json, Store, UserError

AUDIENCE = "https://management.azure.com"
VERSIONS = {
    "resourcegroups": "2021-04-01",
    "microsoft.authorization": "2022-04-01",
    "microsoft.compute/disks": "2023-04-02",
    "microsoft.compute": "2024-07-01",
    "microsoft.network": "2024-05-01",
    "microsoft.storage": "2023-05-01",
    "microsoft.managedidentity": "2024-11-30",
}
WAIT = 60  # seconds for a long operation


def configuration(store: Store) -> Json | None:
    path = store.path.parent.parent / "emulator.json"
    return t.cast(Json, json.loads(path.read_text())) if path.exists() else None


class ArmError(UserError):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status, self.code = status, code


class Arm:
    """Requests with the credentials of an account."""

    def __init__(self, store: Store, account: Json, given: Json) -> None:
        self.subscription = f"/subscriptions/{account['AzureRMSubscriptionId']}"
        self.location, self.given = account.get("Location") or "", given
        self.context = ssl.create_default_context(cafile=given.get("ca"))
        handlers = [urllib.request.HTTPSHandler(context=self.context), urllib.request.ProxyHandler({})]
        self.opener = urllib.request.build_opener(*handlers)
        self.token = self._token(store, account)

    def _token(self, store: Store, account: Json) -> str:
        if account.get("AzureRMUseManagedIdentity"):
            query = urllib.parse.urlencode({"api-version": "2018-02-01", "resource": AUDIENCE})
            url = f"{self.given['metadata']}/metadata/identity/oauth2/token?{query}"
            vm = {"X-Emulator-VM": self.given["vm"]} if self.given.get("vm") else {}
            request = urllib.request.Request(url, headers={"Metadata": "true", **vm})
        else:
            secret = store.unseal(account["AzureRMApplicationSecret"])
            form = {"client_id": account["AzureRMApplicationId"], "client_secret": secret}
            form.update(grant_type="client_credentials", scope=f"{AUDIENCE}/.default")
            url = f"{self.given['url']}/{account['AzureRMTenantId']}/oauth2/v2.0/token"
            request = urllib.request.Request(url, urllib.parse.urlencode(form).encode())
        try:
            with self.opener.open(request, timeout=30) as answer:
                return str(json.loads(answer.read())["access_token"])
        except urllib.error.HTTPError as exc:
            told = json.loads(exc.read() or b"{}").get("error_description", str(exc.code))
            raise UserError(told) from None
        except (OSError, ValueError) as exc:
            raise UserError(f"no token: {exc}") from None

    @property
    def principal(self) -> str:
        middle = self.token.split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["oid"])

    def get(self, path: str, **query: str) -> Json | None:
        try:
            return self.ask("GET", path, **query)
        except ArmError as exc:
            if exc.status == 404:
                return None
            raise

    def put(self, path: str, body: Json) -> Json:
        return self.ask("PUT", path, body)

    def delete(self, path: str) -> None:
        try:
            self.ask("DELETE", path)
        except ArmError as exc:
            if exc.status != 404:
                raise

    def ask(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        """Send a request and wait for what it started."""
        asked = urllib.parse.urlencode({"api-version": _version(path), **query})
        url = f"{self.given['url']}{urllib.parse.quote(path)}?{asked}"
        status, headers, found = self._send(method, url, body)
        follow = headers.get("Azure-AsyncOperation") or headers.get("Location")
        end = time.monotonic() + WAIT
        while status in (200, 201, 202) and method != "GET" and follow and time.monotonic() < end:
            status, dummy, operation = self._send("GET", follow, None)
            state = operation.get("status", "Succeeded" if status != 202 else "InProgress").lower()
            if state == "failed" or state == "canceled":
                error = operation.get("error") or {}
                raise ArmError(409, error.get("code", "Failed"), error.get("message", ""))
            if state == "succeeded":
                break
            time.sleep(0.05)
        return found

    def result(self, path: str, body: Json) -> Json:
        """Call an action, and return what it ends with."""
        status, headers, found = self._send("POST", f"{self.given['url']}{path}?api-version={_version(path)}", body)
        end = time.monotonic() + WAIT
        while status == 202 and time.monotonic() < end:
            time.sleep(0.05)
            status, dummy, found = self._send("GET", headers["Location"], None)
        return found

    def _send(self, method: str, url: str, body: Json | None) -> tuple[int, t.Any, Json]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with self.opener.open(urllib.request.Request(url, data, headers, method=method), timeout=60) as answer:
                return answer.status, answer.headers, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as exc:
            try:
                error = json.loads(exc.read()).get("error") or {}
            except (ValueError, AttributeError):
                error = {}
            raise ArmError(exc.code, error.get("code", str(exc.code)), error.get("message", "")) from None
        except OSError as exc:
            raise ArmError(0, "NoAnswer", str(exc)) from None


def _version(path: str) -> str:
    lower = path.lower()
    kind = lower.rpartition("/providers/")[2]
    for name, version in VERSIONS.items():
        if kind.startswith(name) or (name == "resourcegroups" and "/providers/" not in lower):
            return version
    return "2022-12-01"


def connect(store: Store, name_or_account: str | Json) -> Arm | None:
    """The account's Azure, or nothing where no ARM emulator is named."""
    given = configuration(store)
    if given is None:
        return None
    account = store.state["accounts"].get(name_or_account) if isinstance(name_or_account, str) else name_or_account
    return Arm(store, account, given) if account else None
