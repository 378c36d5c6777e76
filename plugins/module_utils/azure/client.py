# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Azure's resource manager through Azure's own libraries. Private."""

from __future__ import annotations

import json
import os
import traceback
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import arguments, failure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import AzureError, Settings

MISSING = ""
try:
    from azure.core.exceptions import AzureError as LibraryError
    from azure.core.pipeline import policies
    from azure.core.polling import LROPoller
    from azure.core.rest import HttpRequest
    from azure.identity import (
        AzureCliCredential,
        CertificateCredential,
        ClientSecretCredential,
        ManagedIdentityCredential,
    )
    from azure.mgmt.core import ARMPipelineClient
    from azure.mgmt.core.polling.arm_polling import ARMPolling
except ImportError:
    MISSING = traceback.format_exc()

Json = t.Dict[str, t.Any]
POLL = 5
# Groups with machines take up to an hour.
PATIENCE = 7200


def credential(settings: Settings, authority: str) -> t.Any:
    """Return what gives tokens."""
    extra: Json = {} if settings.verify else {"connection_verify": False}
    if settings.source == "cli":
        return AzureCliCredential()
    if settings.source == "msi":
        return ManagedIdentityCredential(**({"client_id": settings.client_id} if settings.client_id else {}))
    extra.update(authority=settings.authority or authority, disable_instance_discovery=not settings.discover)
    if settings.source == "certificate":
        return CertificateCredential(settings.tenant, settings.client_id, settings.certificate, **extra)
    return ClientSecretCredential(settings.tenant, settings.client_id, settings.secret, **extra)


def connect(params: t.Mapping[str, t.Any]) -> Arm:
    """Return Azure as the options of a module say. No token is asked for yet."""
    settings = arguments.settings(params, os.environ)
    if settings.cloud in arguments.CLOUDS:
        return Arm(settings, *arguments.CLOUDS[settings.cloud])
    if not settings.cloud.startswith("https://"):
        raise AzureError(
            f"cloud_environment {settings.cloud} is neither a URL nor one of {', '.join(arguments.CLOUDS)}"
        )
    return Arm(settings, *_discover(settings))


def _discover(settings: Settings) -> tuple[str, str]:
    url = settings.cloud
    url += "" if "/metadata/endpoints" in url else "/metadata/endpoints?api-version=2022-09-01"
    with ARMPipelineClient(url, policies=[policies.RetryPolicy()], connection_verify=settings.verify) as client:
        try:
            answer = client.send_request(HttpRequest("GET", url))
            answer.raise_for_status()
            return arguments.endpoints(answer.json(), url)
        except (LibraryError, ValueError) as exc:
            raise AzureError(f"{url} does not describe a cloud: {exc}") from exc


class Arm:
    """The resource manager of one subscription. Failures are `AzureError` with what to do."""

    def __init__(self, settings: Settings, authority: str, manager: str) -> None:
        self.subscription = settings.subscription
        self.manager = manager
        self._verify = settings.verify
        self.credential = credential(settings, authority)
        self.scope = f"{manager}/.default"
        steps = [
            policies.RequestIdPolicy(),
            policies.UserAgentPolicy("hpcai.gpu_cluster"),
            policies.RetryPolicy(),
            policies.BearerTokenCredentialPolicy(self.credential, self.scope),
        ]
        self._client = ARMPipelineClient(manager, policies=steps, connection_verify=self._verify)

    def library(self, client: t.Any, **extra: t.Any) -> t.Any:
        """Return a client class of an azure-mgmt package, connected."""
        scopes = [self.scope]
        base = {"base_url": self.manager, "credential_scopes": scopes, "connection_verify": self._verify}
        return client(self.credential, self.subscription, **base, **extra)

    def send(self, method: str, path: str, version: str, body: t.Any = None, query: t.Any = None) -> tuple[int, Json]:
        """Send one request, with the library's retries, and return status and document, whatever they are."""
        response = self._raw(method, path, version, body, query).http_response
        return response.status_code, _document(response)

    def _raw(
        self,
        method: str,
        path: str,
        version: str,
        body: t.Any,
        query: t.Any = None,
        content: bytes | None = None,
        kind: str = "",
    ) -> t.Any:
        url = path if path.startswith("https://") else self.manager + path
        given = {"api-version": version, **(query or {})} if version else {}
        load: Json = {} if body is None else {"json": body}
        if content is not None:
            load = {"content": content, "headers": {"Content-Type": kind}}
        request = HttpRequest(method, url, params=given, **load)
        try:
            return self._client.send_request(request, _return_pipeline_response=True)
        except LibraryError as exc:
            raise AzureError(failure.explain(f"{method} {path}: {exc}")) from exc

    def get(self, path: str, version: str) -> Json | None:
        """Return a resource, or None where there is none."""
        status, document = self.send("GET", path, version)
        if status == 404:
            return None
        return self._good("GET", path, status, document)

    def items(self, path: str, version: str, **query: str) -> list[Json]:
        """Return all pages of a listing; what is not there has none."""
        found: list[Json] = []
        status, page = self.send("GET", path, version, query=query)
        while status != 404:
            self._good("GET", path, status, page)
            found += page.get("value") or []
            if not page.get("nextLink"):
                break
            status, page = self.send("GET", page["nextLink"], "")
        return found

    def post(self, path: str, version: str, body: t.Any = None) -> Json:
        """Act, and wait until it is done."""
        return self._change("POST", path, version, body)

    def put(self, path: str, version: str, body: t.Any) -> Json:
        """Make or replace, and wait until it is done."""
        return self._change("PUT", path, version, body)

    def patch(self, path: str, version: str, body: t.Any) -> Json:
        """Change parts, and wait until it is done."""
        return self._change("PATCH", path, version, body)

    def delete(self, path: str, version: str) -> bool:
        """Delete, and wait until it is gone. False says that it was gone."""
        answer = self._raw("DELETE", path, version, None)
        if answer.http_response.status_code in (204, 404):
            return False
        self._wait("DELETE", path, answer)
        return True

    def upload(self, path: str, version: str, content: bytes, kind: str) -> Json:
        """Replace what is no JSON, and wait until it is done."""
        return self._wait("PUT", path, self._raw("PUT", path, version, None, content=content, kind=kind))

    def _change(self, method: str, path: str, version: str, body: t.Any) -> Json:
        return self._wait(method, path, self._raw(method, path, version, body))

    def _wait(self, method: str, path: str, answer: t.Any) -> Json:
        response = answer.http_response
        self._good(method, path, response.status_code, _document(response))
        try:
            polling = ARMPolling(timeout=POLL)
            poller = LROPoller(self._client, answer, lambda last: _document(last.http_response), polling)
            done = poller.result(PATIENCE)
        except LibraryError as exc:
            raise AzureError(failure.explain(f"{method} {path} was accepted and failed: {exc}")) from exc
        if not poller.done():
            raise AzureError(f"{method} {path} was accepted, and Azure works on it still after {PATIENCE / 60:.0f} min")
        return t.cast(Json, done)

    @staticmethod
    def _good(method: str, path: str, status: int, document: Json) -> Json:
        if status >= 400:
            raise AzureError(failure.explain(f"{method} {path} was answered {status}: {failure.told(document)}"))
        return document


def _document(response: t.Any) -> Json:
    try:
        found = json.loads(response.text() or "{}")
    except ValueError:
        return {"error": {"message": response.text()[:500]}}
    return found if isinstance(found, dict) else {"value": found}
