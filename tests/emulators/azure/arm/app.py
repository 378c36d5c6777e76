# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to an answer; no sockets here."""

from __future__ import annotations

import importlib
import re
import traceback
import typing as t
import urllib.parse
import uuid

from . import access, automation, blobs, control, faults, identity, ids, operations, routes, subscriptions
from .faults import error
from .http import ArmError, DropError, Request, Response
from .resources import Resources
from .schema import Schemas
from .state import SUBSCRIPTION, State

PARTS = """subscriptions network security_groups interfaces storage compute galleries vm_routes vmss skus
authorization managed automation marketplace tags blobs""".split()
EMULATED = "/subscriptions/[^/]+/providers/Microsoft.Emulator/(operations|operationResults)/([^/]+)"


class App:
    """The emulator without its network side."""

    def __init__(self, state: State) -> None:
        self.state, self.schemas = state, Schemas()
        self.resources = Resources(state, self.schemas)
        for part in PARTS:
            importlib.import_module(f"{__package__}.{part}")
        with state.lock:
            self.prepare()

    def prepare(self) -> None:
        access.seed(self.state)
        for namespace in self.state.settings["unregistered"]:
            self.state.registered.setdefault(namespace.lower(), "NotRegistered")
        self.state.save()

    def metadata(self, request: Request) -> Response:
        """The instance metadata service of a VM; the header X-Emulator-VM says which one."""
        if request.path == "/automation/token":
            with self.state.lock:
                return automation.token(self.state, request)
        with self.state.lock:
            vms = [one for one in self.state.of_type("Microsoft.Compute/virtualMachines") if one.get("identity")]
            wanted = request.headers.get("X-Emulator-VM", "")
            found = next((one for one in vms if wanted in ("", one["name"])), None)
            if request.path != "/metadata/identity/oauth2/token":
                return Response(404, {"error": "not_found"})
            answer = identity.imds(self.state, request, found)
            self.state.save()
        return answer

    def answer(self, request: Request) -> Response:
        """Answer with faults, errors and the log."""
        if request.path.startswith("/_emulator/"):
            return control.answer(self, request)
        with self.state.lock:
            fault = faults.find(self.state, request) or {}
        answer = Response(0)
        try:
            faults.before(fault)
            with self.state.lock:
                if fault.get("later"):
                    self.state.data["failing"] = faults.envelope(fault["error"])
                answer = self._under_lock(request)
            answer = faults.after(fault, answer)
        except ArmError as problem:
            answer = problem.response()
        except DropError:
            raise
        except Exception:
            self.state.failed(traceback.format_exc())
            answer = ArmError(500, "EmulatorError", "The emulator itself failed: see errors.log.").response()
        finally:
            control.note(self.state, request, answer)
        return answer

    def _under_lock(self, request: Request) -> Response:
        changed = operations.settle(self.state)
        try:
            return self._route(request)
        except ArmError as problem:
            return problem.response()
        finally:
            self.state.data.pop("failing", None)
            if changed or request.method != "GET" or request.path.startswith("/metadata/"):
                self.state.save()

    def _route(self, request: Request) -> Response:
        path = request.path
        if request.origin.endswith(".blob.core.windows.net"):
            return blobs.answer(self.state, request)
        if path == "/metadata/endpoints":
            return identity.cloud(request)
        if re.fullmatch(r"/[^/]+/v2\.0/\.well-known/openid-configuration", path):
            return identity.discovery(request)
        if request.method == "POST" and re.fullmatch(r"/[^/]+/oauth2/v2\.0/token", path):
            return identity.token(self.state, request)
        if path == "/common/discovery/instance":
            return identity.instance(request)
        return self._arm(request)

    def _arm(self, request: Request) -> Response:
        request = request._replace(principal=identity.principal_of(self.state, request))
        subscription = ids.subscription(request.path)
        if subscription and subscription.lower() != SUBSCRIPTION:
            raise error("SubscriptionNotFound", subscription=subscription)
        if not request.version:
            message = "The api-version query parameter (?api-version=) is required for all requests."
            raise ArmError(400, "MissingApiVersionParameter", message)
        polled = re.fullmatch(EMULATED, request.path, re.IGNORECASE)
        if polled:
            return operations.ask(self.state, request, polled[1], polled[2])
        if request.path.lower() == "/batch" and request.method == "POST":
            return self._batch(request)
        found = routes.find(self.state, self.schemas, request)
        if found:
            return found
        target = ids.parse(request.path)
        if not target:
            raise ArmError(404, "NotFound", f"There is no {request.method} {request.path}.")
        return self.resources.handle(request, target)

    def _batch(self, request: Request) -> Response:
        answers = []
        parts = subscriptions.batch(routes.Context(self.state, self.schemas, request, {}))
        for one in parts:
            split = urllib.parse.urlsplit(one.path)
            query = {key.lower(): value for key, value in urllib.parse.parse_qsl(split.query)}
            try:
                answer = self._arm(one._replace(path=urllib.parse.unquote(split.path), query=query))
            except ArmError as problem:
                answer = problem.response()
            answers.append({"httpStatusCode": answer.status, "content": answer.body, "headers": dict(answer.headers),
                            "name": str(uuid.uuid4())})  # fmt: skip
        return Response(200, {"responses": answers})


def origin(headers: t.Mapping[str, str]) -> str:
    return f"https://{headers.get('Host', 'localhost')}"
