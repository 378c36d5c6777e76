# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data plane of storage accounts, as much as azure.azcollection and a locker need: containers and block blobs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import typing as t
import urllib.parse
from pathlib import Path
from xml.sax.saxutils import escape

from . import access, identity, storage
from .authorization import now
from .http import ArmError, Request, Response
from .state import State

HEAD = '<?xml version="1.0" encoding="utf-8"?>'
DATE = "Sun, 01 Nov 2026 00:00:00 GMT"
# Without a date: SharedKey signs x-ms-date, as all SDKs send it.
SIGNED = "content-encoding content-language content-length content-md5 content-type date if-modified-since if-match"
SIGNED += " if-none-match if-unmodified-since range"


class BlobError(ArmError):
    """An error as the storage service words it: XML."""

    def response(self) -> Response:
        text = f"{HEAD}<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message></Error>"
        return Response(self.status, text, {"Content-Type": "application/xml", "x-ms-error-code": self.code})


def signature(request: Request, account: str, key: str) -> str:
    """Return what a request signed with SharedKey has to carry."""
    given = {name.lower(): value for name, value in request.headers.items()}
    if given.get("content-length") == "0":
        given["content-length"] = ""
    own = "".join(f"{name}:{given[name].strip()}\n" for name in sorted(given) if name.startswith("x-ms-"))
    said = f"/{account}{urllib.parse.quote(request.path)}"
    said += "".join(f"\n{name}:{request.query[name]}" for name in sorted(request.query))
    lines = [request.method, *(given.get(name, "") for name in SIGNED.split())]
    text = "\n".join(lines) + f"\n{own}{said}"
    return base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()


def authorize(state: State, request: Request, account: dict[str, t.Any], action: str) -> None:
    """Let a key or a token in; both are really checked."""
    given = request.headers.get("Authorization", "")
    if given.startswith("SharedKey "):
        if account["properties"].get("allowSharedKeyAccess") is False:
            message = "Key based authentication is not permitted on this storage account."
            raise BlobError(403, "KeyBasedAuthenticationNotPermitted", message)
        wanted = [signature(request, account["name"], one["value"]) for one in storage.keys(account["name"])]
        if given.rpartition(":")[2] not in wanted:
            message = "Server failed to authenticate the request. Make sure the value of Authorization header is formed"
            raise BlobError(403, "AuthenticationFailed", f"{message} correctly including the signature.")
        return
    try:
        principal = identity.principal_of(state, request, identity.STORAGE)
    except ArmError as problem:
        raise BlobError(401, "InvalidAuthenticationInfo", problem.message) from problem
    wanted_action = f"Microsoft.Storage/storageAccounts/blobServices/containers/blobs/{action}"
    for one in access.permissions(state, principal, account["id"]):
        said = {"actions": one.get("dataActions", []), "notActions": one.get("notDataActions", [])}
        if access.covers(said, wanted_action):
            return
    message = "This request is not authorized to perform this operation using this permission."
    raise BlobError(403, "AuthorizationPermissionMismatch", message)


def answer(state: State, request: Request) -> Response:
    """Answer a request to ACCOUNT.blob.core.windows.net."""
    try:
        return _answer(state, request)
    except BlobError as problem:
        return problem.response()


def _answer(state: State, request: Request) -> Response:
    name = request.origin[len("https://") :].split(".")[0]
    account = next((one for one in state.of_type(storage.S) if one["name"] == name), None)
    if not account:
        raise BlobError(404, "ResourceNotFound", "The specified account does not exist.")
    action = {"GET": "read", "HEAD": "read", "DELETE": "delete"}.get(request.method, "write")
    authorize(state, request, account, action)
    container, dummy, blob = request.path.lstrip("/").partition("/")
    if not container:
        return _service(state, request, account)
    base = f"{account['id']}/blobServices/default/containers/{container}"
    if not blob:
        return _container(state, request, base, container)
    if not state.get(base):
        raise BlobError(404, "ContainerNotFound", "The specified container does not exist.")
    return _blob(state.folder / "blobs" / name / container / urllib.parse.quote(blob, safe=""), request)


def _xml(text: str) -> Response:
    return Response(200, HEAD + text, {"Content-Type": "application/xml"})


def _service(state: State, request: Request, account: dict[str, t.Any]) -> Response:
    if request.query.get("comp") == "list":
        found = state.under(f"{account['id']}/blobServices/default/containers")
        names = "".join(f"<Container><Name>{one['name']}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
                        "<Etag>&quot;1&quot;</Etag></Properties></Container>" for one in found)  # fmt: skip
        return _xml(f"<EnumerationResults><Containers>{names}</Containers><NextMarker/></EnumerationResults>")
    if request.query.get("comp") == "properties" and request.method == "GET":
        off = "<Enabled>false</Enabled>"
        return _xml(f"<StorageServiceProperties><StaticWebsite>{off}</StaticWebsite><DeleteRetentionPolicy>{off}"
                    "</DeleteRetentionPolicy><Cors/></StorageServiceProperties>")  # fmt: skip
    raise BlobError(400, "InvalidQueryParameterValue", "Not emulated.")


def _container(state: State, request: Request, base: str, name: str) -> Response:
    found, kind = state.get(base), f"{storage.S}/blobServices/containers"
    marks = {"ETag": '"1"', "Last-Modified": DATE}
    if request.method == "PUT":
        if found:
            raise BlobError(409, "ContainerAlreadyExists", "The specified container already exists.")
        said = {"publicAccess": "None", "lastModifiedTime": now(), "leaseState": "Available"}
        state.put({"id": base, "name": name, "type": kind, "properties": said})
        return Response(201, None, marks)
    if not found:
        raise BlobError(404, "ContainerNotFound", "The specified container does not exist.")
    if request.method == "DELETE":
        state.drop(base)
        return Response(202)
    if request.query.get("comp") == "list":
        return _list(state.folder / "blobs" / base.split("/")[8] / name, request.query.get("prefix", ""))
    return Response(200, None, {**marks, "x-ms-lease-state": "available"})


def _list(directory: Path, prefix: str) -> Response:
    names = sorted(urllib.parse.unquote(one.name) for one in directory.glob("*")) if directory.is_dir() else []
    said = "".join(f"<Blob><Name>{escape(one)}</Name><Properties><BlobType>BlockBlob</BlobType><Etag>1</Etag>"
                   f"<Last-Modified>{DATE}</Last-Modified></Properties></Blob>"
                   for one in names if one.startswith(prefix))  # fmt: skip
    return _xml(f"<EnumerationResults><Blobs>{said}</Blobs><NextMarker/></EnumerationResults>")


def _blob(path: Path, request: Request) -> Response:
    marks = {"ETag": '"1"', "Last-Modified": DATE, "x-ms-blob-type": "BlockBlob"}
    if request.method == "PUT":
        if request.query or request.headers.get("x-ms-blob-type") != "BlockBlob":
            raise BlobError(400, "InvalidHeaderValue", "Only whole block blobs are emulated.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(request.raw)
        return Response(201, None, marks)
    if not path.is_file():
        raise BlobError(404, "BlobNotFound", "The specified blob does not exist.")
    if request.method == "DELETE":
        path.unlink()
        return Response(202)
    data, asked = path.read_bytes(), request.headers.get("x-ms-range") or request.headers.get("Range") or ""
    marks["Content-Type"] = "application/octet-stream"
    part = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
    if not part or request.method == "HEAD":
        return Response(200, data, marks)
    start, end = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
    if start > end:
        raise BlobError(416, "InvalidRange", "The range specified is invalid for the current size of the resource.")
    return Response(206, data[start : end + 1], {**marks, "Content-Range": f"bytes {start}-{end}/{len(data)}"})
