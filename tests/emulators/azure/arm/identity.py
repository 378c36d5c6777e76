# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may come in: token endpoint, OIDC discovery, the cloud's description, tokens of managed identities."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
import typing as t
import urllib.parse

from .http import ArmError, Request, Response
from .state import TENANT, State


def _token(state: State, principal: str, audience: str) -> tuple[str, int]:
    """Make a token of a JWT's shape; the memory, not its signature, says whether it is good."""
    seconds = int(state.settings["token_seconds"])
    now = int(time.time())
    said = {"aud": audience, "oid": principal, "tid": TENANT, "iat": now, "nbf": now, "exp": now + seconds}
    said["appid"] = state.directory[principal]["appId"]
    head = {"typ": "JWT", "alg": "RS256", "kid": "emulator"}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (head, said)]
    token = ".".join([*parts, secrets.token_urlsafe(24)])
    state.tokens[hashlib.sha256(token.encode()).hexdigest()] = {"principal": principal, "until": now + seconds}
    state.tokens[hashlib.sha256(token.encode()).hexdigest()]["audience"] = audience.rstrip("/")
    return token, seconds


ARM = ("https://management.azure.com", "https://management.core.windows.net")
STORAGE = ("https://storage.azure.com",)
GRAPH = ("https://graph.microsoft.com",)


def _host(url: str) -> str:
    """Return an origin without its port: the emulator's own changes with a restart."""
    return url.split("://")[-1].split(":")[0]


def principal_of(state: State, request: Request, audiences: tuple[str, ...] = ARM) -> str:
    """Return whose token a request has, or refuse it."""
    given = request.headers.get("Authorization", "")
    challenge = {"WWW-Authenticate": f'Bearer authorization_uri="{request.origin}/{TENANT}", error="invalid_token"'}
    if not given.startswith("Bearer "):
        message = "Authentication failed. The 'Authorization' header is missing."
        raise ArmError(401, "AuthenticationFailed", message, headers=challenge)
    known = state.tokens.get(hashlib.sha256(given[7:].encode()).hexdigest())
    if not known:
        raise ArmError(401, "InvalidAuthenticationToken", "The access token is invalid.", headers=challenge)
    if _host(known["audience"]) not in [_host(one) for one in (*audiences, request.origin)]:
        message = f"The access token has been obtained for wrong audience or resource '{known['audience']}'."
        raise ArmError(401, "InvalidAuthenticationToken", message, headers=challenge)
    if known["until"] < time.time():
        message = "The access token expiry UTC time is earlier than current UTC time."
        raise ArmError(401, "ExpiredAuthenticationToken", message, headers=challenge)
    if known["principal"] not in state.directory:
        raise ArmError(401, "InvalidAuthenticationToken", "The identity of the token was deleted.", headers=challenge)
    return str(known["principal"])


def _refuse(code: str, message: str, error: str = "invalid_client", status: int = 401) -> Response:
    told = f"{code}: {message} Trace ID: 00000000-0000-0000-0000-000000000000"
    return Response(status, {"error": error, "error_description": told, "error_codes": [int(code[7:])]})


def token(state: State, request: Request) -> Response:
    """POST /{tenant}/oauth2/v2.0/token with client credentials."""
    form = {key: values[0] for key, values in urllib.parse.parse_qs(request.raw.decode()).items()}
    tenant = request.path.split("/")[1]
    client, secret = form.get("client_id", ""), form.get("client_secret", "")
    if tenant != TENANT:
        return _refuse("AADSTS90002", f"Tenant '{tenant}' not found.", "invalid_request", 400)
    if form.get("grant_type") != "client_credentials":
        return _refuse("AADSTS70003", f"The app requested an unsupported grant type '{form.get('grant_type')}'.",
                       "unsupported_grant_type", 400)  # fmt: skip
    principal = next((key for key, one in state.directory.items() if one["appId"] == client), "")
    if not principal or client not in state.settings["secrets"]:
        message = f"Application with identifier '{client}' was not found in the directory."
        return _refuse("AADSTS700016", message, "unauthorized_client", 400)
    if secret in state.settings["expired_secrets"]:
        return _refuse("AADSTS7000222", f"The provided client secret keys for app '{client}' are expired.")
    if secret not in state.settings["secrets"][client]:
        message = f"Invalid client secret provided. Ensure the secret being sent is correct for app '{client}'."
        return _refuse("AADSTS7000215", message)
    scope = form.get("scope", "")
    match = re.fullmatch(r"(https://[^/]+)/{0,2}/\.default", scope)
    if not match or match[1] not in (*ARM, *STORAGE, *GRAPH, request.origin):
        return _refuse("AADSTS500011", f"The resource principal named {scope} was not found.", "invalid_resource", 400)
    made, seconds = _token(state, principal, match[1])
    body = {"token_type": "Bearer", "expires_in": seconds, "ext_expires_in": seconds, "access_token": made}
    return Response(200, body, {"Cache-Control": "no-store"})


def imds(state: State, request: Request, vm: dict[str, t.Any] | None) -> Response:
    """GET /metadata/identity/oauth2/token as a VM of ours sees it."""
    if request.headers.get("Metadata", "").lower() != "true":
        return Response(
            400, {"error": "invalid_request", "error_description": "Required metadata header not specified"}
        )
    if not request.version or not request.query.get("resource"):
        return Response(400, {"error": "invalid_request", "error_description": "api-version and resource are required"})
    identity = (vm or {}).get("identity") or {}
    found = _chosen(identity, request.query)
    if not found:
        return Response(400, {"error": "invalid_request", "error_description": "Identity not found"})
    made, seconds = _token(state, found, request.query["resource"])
    times = {"expires_in": str(seconds), "expires_on": str(int(time.time()) + seconds)}
    client = state.directory[found]["appId"]
    more = {"resource": request.query["resource"], "token_type": "Bearer", "client_id": client}
    return Response(200, {"access_token": made, **times, **more})


def for_job(state: State, principal: str, resource: str) -> Response:
    """Answer a job of Azure Automation."""
    made, seconds = _token(state, principal, resource)
    said = {"expires_on": str(int(time.time()) + seconds), "resource": resource, "token_type": "Bearer"}
    return Response(200, {"access_token": made, **said})


def _chosen(identity: dict[str, t.Any], query: dict[str, str]) -> str:
    own = identity.get("principalId", "")
    users = {key.lower(): value for key, value in (identity.get("userAssignedIdentities") or {}).items()}
    wanted = query.get("client_id") or query.get("object_id") or query.get("msi_res_id") or query.get("mi_res_id")
    if not wanted:
        return own or (next(iter(users.values()))["principalId"] if len(users) == 1 else "")
    for key, value in users.items():
        if wanted.lower() in (key, value["clientId"].lower(), value["principalId"].lower()):
            return str(value["principalId"])
    return ""


def discovery(request: Request) -> Response:
    """GET /{tenant}/v2.0/.well-known/openid-configuration"""
    base = f"{request.origin}/{request.path.split('/')[1]}"
    return Response(200, {
        "token_endpoint": f"{base}/oauth2/v2.0/token",
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
        "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
        "issuer": f"{request.origin}/{TENANT}/v2.0",
        "jwks_uri": f"{base}/discovery/v2.0/keys",
        "response_types_supported": ["code", "id_token"],
        "scopes_supported": ["openid"],
        "subject_types_supported": ["pairwise"],
    })  # fmt: skip


def cloud(request: Request) -> Response:
    """GET /metadata/endpoints: how azure-cli-core learns of a cloud."""
    origin = request.origin
    one = {
        "name": "EmulatedCloud",
        "authentication": {
            "loginEndpoint": origin,
            "audiences": [f"{origin}/"],
            "tenant": "common",
            "identityProvider": "AAD",
        },
        "portal": origin,
        "resourceManager": f"{origin}/",
        "graphAudience": f"{origin}/graph/",
        "microsoftGraphResourceId": f"{origin}/graph/",
        "batch": f"{origin}/batch/",
        "media": f"{origin}/media/",
        "sqlManagement": f"{origin}/sql/",
        "gallery": f"{origin}/gallery/",
        "vmImageAliasDoc": f"{origin}/aliases.json",
        "suffixes": {"storage": "core.windows.net", "keyVaultDns": "vault.azure.net"},
    }
    new = request.version >= "2022-09-01" or request.version == "2019-05-01"
    return Response(200, [one] if new else one)


def instance(request: Request) -> Response:
    """GET /common/discovery/instance: MSAL asks whether it knows the authority."""
    base = f"{request.origin}/{TENANT}"
    known = [{"preferred_network": "login.microsoftonline.com", "preferred_cache": "login.windows.net",
              "aliases": ["login.microsoftonline.com", "login.windows.net"]}]  # fmt: skip
    more = {"tenant_discovery_endpoint": f"{base}/v2.0/.well-known/openid-configuration", "api-version": "1.1"}
    return Response(200, {**more, "metadata": known})
