# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run record and files beside it in a container of Azure Blob Storage. Private.

Two jobs may write at once, from anywhere. Where another one has replaced the record since it was read, the service
refuses the write (If-Match), and the record is read and merged again: nothing is lost and nobody waits for a lock.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import merge, parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client

VERSION = "2023-11-03"  # of the service's interface
SCOPE = "https://storage.azure.com/.default"
TRIES = 10
_PLACE = re.compile(r"https://[a-z0-9]{3,24}\.blob(\.[a-z0-9-]+)+/[a-z0-9](-?[a-z0-9]){2,62}(/[A-Za-z0-9_][\w.-]*)*")
_HINTS = {
    401: "The storage account takes no token of this identity's tenant.",
    403: "The identity needs the role Storage Blob Data Contributor there, and a way through the account's firewall.",
    404: "The container has to exist; nothing here makes one.",
}
Json = t.Dict[str, t.Any]


class BlobError(ValueError):
    """The container cannot be read or written; the text is fit for the user."""


class Blobs:
    """The blobs below one address, as the identity of the variables AZURE_* sees them."""

    def __init__(self, place: str) -> None:
        if not _PLACE.fullmatch(place):
            raise BlobError(
                f"{place} is no place for blobs; accepted: https://ACCOUNT.blob.core.windows.net/CONTAINER, "
                "and directories behind it"
            )
        if client.MISSING:
            raise BlobError(
                f"{place} needs azure-identity and azure-mgmt-core where Ansible runs: {client.MISSING.strip()}"
            )
        from azure.core import PipelineClient
        from azure.core.pipeline import policies

        self.place = place
        try:
            arm = client.connect({})
        except client.AzureError as exc:
            raise BlobError(f"Cannot log in to reach {place}: {exc}") from exc
        steps = [
            policies.UserAgentPolicy("hpcai.gpu_cluster"),
            policies.RetryPolicy(),
            policies.BearerTokenCredentialPolicy(arm.credential, SCOPE),
        ]
        self._client = PipelineClient(place, policies=steps)

    def read(self, name: str) -> tuple[str, str]:
        """Return a blob's text and its version; both are empty where there is none."""
        answer = self._send("GET", name)
        if answer.status_code == 404 and answer.headers.get("x-ms-error-code") == "BlobNotFound":
            return "", ""
        self._good("read", name, answer)
        return answer.text("utf-8"), answer.headers["ETag"]

    def replace(self, name: str, content: bytes, version: str | None = None) -> bool:
        """Write a blob; with the version that was read (empty: there was none) only if nobody has written since."""
        headers = {"x-ms-blob-type": "BlockBlob"}
        if version is not None:
            headers.update({"If-Match": version} if version else {"If-None-Match": "*"})
        answer = self._send("PUT", name, content, **headers)
        if version is not None and answer.status_code in (409, 412):
            return False
        self._good("write", name, answer)
        return True

    def _send(self, method: str, name: str, content: bytes | None = None, **headers: str) -> t.Any:
        from azure.core.exceptions import AzureError as LibraryError
        from azure.core.rest import HttpRequest

        given = {"x-ms-version": VERSION, **headers}
        request = HttpRequest(method, f"{self.place}/{name}", headers=given, content=content)
        try:
            return self._client.send_request(request)
        except LibraryError as exc:
            raise BlobError(f"{method} {self.place}/{name}: {client.explain(str(exc))}") from exc

    def _good(self, verb: str, name: str, answer: t.Any) -> None:
        if answer.status_code >= 300:
            code = answer.headers.get("x-ms-error-code", "no error code")
            hint = _HINTS.get(answer.status_code, "")
            raise BlobError(f"Cannot {verb} {self.place}/{name}: {answer.status_code} {code}. {hint}".strip())


def fetch(blobs: Blobs, name: str) -> Json:
    """Return the record in the container; one that is not there is empty."""
    return parse(blobs.read(name)[0] or "{}", f"{blobs.place}/{name}")


def keep(blobs: Blobs, name: str, own: Json, runs: int) -> Json:
    """Merge a record into that in the container, and return what came of it."""
    for dummy in range(TRIES):
        text, version = blobs.read(name)
        merged = merge(parse(text or "{}", f"{blobs.place}/{name}"), own, runs)
        if blobs.replace(name, json.dumps(merged, indent=1, allow_nan=False).encode() + b"\n", version):
            return merged
    raise BlobError(
        f"Cannot write {blobs.place}/{name}: others replaced it {TRIES} times between our look and our write."
    )
