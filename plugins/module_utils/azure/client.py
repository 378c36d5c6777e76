# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Azure Resource Manager by its REST API: settings, credentials, retries, and what a refusal means."""

from __future__ import annotations

import configparser
import json
import os
import re
import traceback
import typing as t
from pathlib import Path

# Options and variables that choose subscription, identity and cloud, the same as those of azure.azcollection.


_TEXT = {"type": "str"}
SPEC: dict[str, dict[str, t.Any]] = {
    "auth_source": {"type": "str", "choices": ["auto", "cli", "env", "credential_file", "msi"]},
    "profile": _TEXT,
    "subscription_id": _TEXT,
    "tenant": _TEXT,
    "client_id": _TEXT,
    "secret": {"type": "str", "no_log": True},
    "x509_certificate_path": {"type": "path"},
    "cloud_environment": _TEXT,
    "adfs_authority_url": _TEXT,
    "cert_validation_mode": {"type": "str", "choices": ["validate", "ignore"]},
    "disable_instance_discovery": {"type": "bool"},
}
_VARIABLES = {
    "auth_source": "ANSIBLE_AZURE_AUTH_SOURCE",
    "profile": "AZURE_PROFILE",
    "subscription_id": "AZURE_SUBSCRIPTION_ID",
    "tenant": "AZURE_TENANT",
    "client_id": "AZURE_CLIENT_ID",
    "secret": "AZURE_SECRET",
    "x509_certificate_path": "AZURE_X509_CERTIFICATE_PATH",
    "cloud_environment": "AZURE_CLOUD_ENVIRONMENT",
    "adfs_authority_url": "AZURE_ADFS_AUTHORITY_URL",
    "cert_validation_mode": "AZURE_CERT_VALIDATION_MODE",
    "disable_instance_discovery": "AZURE_DISABLE_INSTANCE_DISCOVERY",
}
_PUBLIC = ("https://login.microsoftonline.com", "https://management.azure.com")
CLOUDS = {
    "AzureCloud": _PUBLIC,
    "AzureUSGovernment": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
    "AzureChinaCloud": ("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
}
_TRUE = ("1", "on", "t", "true", "y", "yes")


class AzureError(Exception):
    """Azure cannot be reached or refuses the request; the text is fit for the user."""


class AzureSettings(t.NamedTuple):
    """The identity that logs in, and the subscription and cloud that it uses."""

    source: str
    subscription: str
    tenant: str = ""
    client_id: str = ""
    secret: str = ""
    certificate: str = ""
    cloud: str = "AzureCloud"
    authority: str = ""
    verify: bool = True
    discover: bool = True


def read_settings(
    params: t.Mapping[str, t.Any], environ: t.Mapping[str, str], home: Path | None = None
) -> AzureSettings:
    """Join options, variables and ``~/.azure/credentials`` in the order in which azure.azcollection does."""
    values = {name: str(value) for name, value in _joined(params, environ, home).items() if value not in (None, "")}
    if not values.get("subscription_id"):
        raise AzureError("Which subscription? Set AZURE_SUBSCRIPTION_ID or the option subscription_id.")
    source = _source(values)
    # AWX's credential sets these two, even empty, where it has no client and no tenant.
    # A job has no `az login` to go on with.
    if source == "cli" and values["auth_source"] != "cli" and {"AZURE_AD_USER", "AZURE_PASSWORD"} <= set(environ):
        raise AzureError(
            "AZURE_AD_USER and AZURE_PASSWORD cannot log in here: no user's password does where a second factor is "
            "asked for. Give a service principal: AZURE_CLIENT_ID, AZURE_TENANT and AZURE_SECRET (in AWX, the client, "
            "tenant and secret of the credential)."
        )
    return AzureSettings(
        source,
        values["subscription_id"],
        values.get("tenant", ""),
        values.get("client_id", ""),
        values.get("secret", ""),
        values.get("x509_certificate_path", ""),
        values.get("cloud_environment", "AzureCloud"),
        values.get("adfs_authority_url", ""),
        values.get("cert_validation_mode", "validate") == "validate",
        values.get("disable_instance_discovery", "").lower() not in _TRUE,
    )


def _joined(params: t.Mapping[str, t.Any], environ: t.Mapping[str, str], home: Path | None) -> dict[str, t.Any]:
    options = {name: params[name] for name in SPEC if params.get(name) is not None}
    variables = {name: environ.get(variable) for name, variable in _VARIABLES.items() if environ.get(variable)}
    source = options.get("auth_source") or variables.get("auth_source") or "auto"
    profile = options.get("profile") or variables.get("profile")
    if source == "env":
        options = {}
    file = _profile(home, profile or "default") if profile or source == "credential_file" else {}
    if not file and source == "auto" and not ({**variables, **options}).get("subscription_id"):
        file = _profile(home, "default")
    return {**file, **({} if source == "credential_file" else variables), **options, "auth_source": source}


def _profile(home: Path | None, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read((home or Path.home()) / ".azure/credentials")
    except (configparser.Error, UnicodeError) as exc:
        raise AzureError(f"~/.azure/credentials cannot be read: {str(exc).splitlines()[0]}") from exc
    return {key: value for key, value in parser[name].items() if key in SPEC} if name in parser else {}


def _source(values: t.Mapping[str, str]) -> str:
    source = values.get("auth_source", "auto")
    if source in ("cli", "msi"):
        return source
    if values.get("client_id") and values.get("tenant"):
        if values.get("secret"):
            return "secret"
        if values.get("x509_certificate_path"):
            return "certificate"
    if source == "auto":
        return "cli"
    raise AzureError(
        f"Credentials from {source} are incomplete: needed are client_id, tenant, and secret or x509_certificate_path "
        "(AZURE_CLIENT_ID, AZURE_TENANT, AZURE_SECRET)."
    )


def endpoints(answer: t.Any, url: str) -> tuple[str, str]:
    """Return the login server and the resource manager that a discovery document names."""
    clouds = answer if isinstance(answer, list) else [answer]
    try:
        cloud = clouds[0]
        login = cloud["authentication"]["loginEndpoint"]
        # The first form of the document, still that of Azure Stack, does not name the server that was asked.
        manager = cloud.get("resourceManager") or "/".join(url.split("/")[:3])
        return str(login).rstrip("/"), str(manager).rstrip("/")
    except (AttributeError, IndexError, KeyError, TypeError) as exc:
        raise AzureError(f"{url} does not describe a cloud: authentication.loginEndpoint is missing") from exc


# What Azure's errors mean and what to do about them.


_PREFLIGHT = "azure_compute_preflight tells the numbers."
# The first that is found in a text explains it, so what hides in details comes before what wraps it.
REMEDIES: tuple[tuple[str, str], ...] = (
    ("AADSTS7000222", "The client secret has expired: make a new one and set AZURE_SECRET."),
    ("AADSTS7000215", "The client secret is wrong: AZURE_SECRET wants the secret's value, not its identifier."),
    ("AADSTS700016", "The tenant does not know the application: check AZURE_CLIENT_ID and AZURE_TENANT."),
    ("AADSTS90002", "There is no such tenant: check AZURE_TENANT."),
    ("invalid_client", "The login was refused: check AZURE_TENANT, AZURE_CLIENT_ID and AZURE_SECRET."),
    ("InvalidAuthenticationToken", "Azure does not take the token: check tenant, cloud and this machine's clock."),
    ("SubscriptionNotFound", "Check AZURE_SUBSCRIPTION_ID, and that the identity has a role in that subscription."),
    ("LinkedAuthorizationFailed", "The identity may not use what this resource points to: give it a role there, too."),
    ("RoleAssignmentUpdateNotPermitted", "An assignment of an earlier principal is left over: delete it (it shows as "
     "'Identity not found'), then run again."),
    ("RoleAssignmentExists", "The same role is assigned under another name. Nothing is to be done; run again."),
    ("PrincipalNotFound", "The directory does not know the principal yet: run again in some minutes."),
    ("RequestDisallowedByPolicy", "A policy of the organization forbids it: ask for an exemption, or do as it wants."),
    ("AuthorizationFailed", "The identity lacks the right that the message names: have a role with it assigned at that "
     "scope, and wait some minutes."),
    ("MarketplacePurchaseEligibilityFailed", "Accept the image's terms (azure_infra_server_accept_terms), or have the "
     "subscription allowed to buy."),
    ("ResourcePurchaseValidationFailed", "The terms of the image are not accepted (azure_infra_server_accept_terms)."),
    ("OverconstrainedAllocationRequest", "No place fits all that is asked for at once: ask for less (zone, placement "
     "group, size)."),
    ("ZonalAllocationFailed", "This zone has no machines left: try another zone or no zone."),
    ("AllocationFailed", "The region has no machines of this size left: wait, or try another size or region."),
    ("SkuNotAvailable", "The size is not offered to this subscription here: choose another size, zone or region, or "
     "ask Microsoft to lift the restriction."),
    ("QuotaExceeded", f"Ask for quota in the portal (Quotas), or ask for less. {_PREFLIGHT}"),
    ("exceeding approved", f"Ask for quota in the portal (Quotas), or ask for less. {_PREFLIGHT}"),
    ("StorageAccountAlreadyTaken", "Somebody else has this name: set azure_infra_storage_account."),
    ("KeyBasedAuthenticationNotPermitted", "The account takes no shared keys: an identity has to be used."),
    ("InvalidResourceGroupLocation", "The resource group exists in another region: choose that one or another name."),
    ("MissingSubscriptionRegistration", "Register the provider that is named: az provider register --namespace NAME."),
    ("ResourceGroupBeingDeleted", "The resource group is being deleted: wait until it is gone, then run again."),
    ("ScopeLocked", "A lock forbids it: remove the lock that is named, or ask who made it."),
    ("CannotDeleteResource", "Something else still uses or holds it: remove that first."),
    ("ResourceGroupNotFound", "The resource group is gone: run again from the beginning."),
    ("NoRegisteredProviderFound", "The region does not have this: check its name (az account list-locations)."),
    ("LocationNotAvailableForResourceType", "Check the name of the region (az account list-locations)."),
    ("InvalidLocation", "Check the name of the region (az account list-locations)."),
    ("TooManyRequests", "Azure throttles this subscription: run again in some minutes."),
    ("CERTIFICATE_VERIFY_FAILED", "The certificate of the server is not trusted: set REQUESTS_CA_BUNDLE."),
    ("OperationNotAllowed", f"If the message speaks of cores, ask for quota in the portal (Quotas). {_PREFLIGHT}"),
    ("InvalidTemplateDeployment", "Read the details: they name the resource at fault."),
    ("Connection", "Azure was not reached or broke off: run again; what was begun is found and continued."),
    ("InternalServerError", "Azure failed: run again; what was begun is found and continued."),
)  # fmt: skip
_SECRET = re.compile(r"(client_secret=|Bearer |\"secret\": *\")[^\s&\"']+")
_DEPTH = 4


def remedy(text: str) -> str:
    """Return what to do about an error, or nothing."""
    lower = text.lower()
    return next((advice for code, advice in REMEDIES if code.lower() in lower), "")


def explain(text: str) -> str:
    """Return the error with what to do, and without anything secret."""
    clean = _SECRET.sub(r"\1***", " ".join(text.split()))
    advice = remedy(clean)
    return clean if not advice or advice in clean else f"{clean.rstrip('. ')}. What to do: {advice}"


def error_text(document: t.Any) -> str:
    """Return the messages of an error document of Azure, with the details in which the cause often hides."""
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, str):
        return f"{error}: {document.get('error_description', '')}".rstrip(": ")
    return "; ".join(_parts(error or document, _DEPTH)) or "nothing"


def _parts(error: t.Any, depth: int) -> t.Iterator[str]:
    if not isinstance(error, dict) or not depth:
        return
    message = ": ".join(str(error[key]) for key in ("code", "message") if error.get(key))
    if message:
        yield message
    for entry in error.get("additionalInfo") or []:
        info = entry.get("info") if isinstance(entry, dict) else None
        if isinstance(info, dict) and info.get("policyDefinitionDisplayName"):
            yield f"policy {info['policyDefinitionDisplayName']!r}"
    for detail in error.get("details") or []:
        yield from _parts(detail, depth - 1)


# Azure's resource manager through Azure's own libraries.


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


def credential(settings: AzureSettings, authority: str) -> t.Any:
    """Return the credential that the settings name."""
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
    """Return the resource manager that the options of a module name. No token is fetched yet."""
    settings = read_settings(params, os.environ)
    if settings.cloud in CLOUDS:
        return Arm(settings, *CLOUDS[settings.cloud])
    if not settings.cloud.startswith("https://"):
        raise AzureError(f"cloud_environment {settings.cloud} is neither a URL nor one of {', '.join(CLOUDS)}")
    return Arm(settings, *_discover(settings))


def _discover(settings: AzureSettings) -> tuple[str, str]:
    url = settings.cloud
    url += "" if "/metadata/endpoints" in url else "/metadata/endpoints?api-version=2022-09-01"
    with ARMPipelineClient(url, policies=[policies.RetryPolicy()], connection_verify=settings.verify) as client:
        try:
            answer = client.send_request(HttpRequest("GET", url))
            answer.raise_for_status()
            return endpoints(answer.json(), url)
        except (LibraryError, ValueError) as exc:
            raise AzureError(f"{url} does not describe a cloud: {exc}") from exc


class Arm:
    """The resource manager of one subscription. Failures are `AzureError` with what to do."""

    def __init__(self, settings: AzureSettings, authority: str, manager: str) -> None:
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
        parameters = {"api-version": version, **(query or {})} if version else {}
        payload: Json = {} if body is None else {"json": body}
        if content is not None:
            payload = {"content": content, "headers": {"Content-Type": kind}}
        request = HttpRequest(method, url, params=parameters, **payload)
        try:
            return self._client.send_request(request, _return_pipeline_response=True)
        except LibraryError as exc:
            raise AzureError(explain(f"{method} {path}: {exc}")) from exc

    def get(self, path: str, version: str) -> Json | None:
        """Return a resource, or None where there is none."""
        status, document = self.send("GET", path, version)
        if status == 404:
            return None
        return self._good("GET", path, status, document)

    def text(self, path: str, version: str) -> str | None:
        """Return content that is not JSON, such as a published runbook, or None where there is none."""
        response = self._raw("GET", path, version, None).http_response
        if response.status_code == 404:
            return None
        if response.status_code >= 400:
            self._good("GET", path, response.status_code, _document(response))
        return str(response.text())

    def items(self, path: str, version: str, **query: str) -> list[Json]:
        """Return the entries of all pages of a listing; none where the listed resource does not exist."""
        records: list[Json] = []
        status, page = self.send("GET", path, version, query=query)
        while status != 404:
            self._good("GET", path, status, page)
            records += page.get("value") or []
            if not page.get("nextLink"):
                break
            status, page = self.send("GET", page["nextLink"], "")
        return records

    def post(self, path: str, version: str, body: t.Any = None) -> Json:
        """Call an action of a resource, and wait until it is done."""
        return self._change("POST", path, version, body)

    def put(self, path: str, version: str, body: t.Any) -> Json:
        """Make or replace a resource, and wait until it is done."""
        return self._change("PUT", path, version, body)

    def patch(self, path: str, version: str, body: t.Any) -> Json:
        """Change parts of a resource, and wait until it is done."""
        return self._change("PATCH", path, version, body)

    def delete(self, path: str, version: str) -> bool:
        """Delete a resource and wait until it is gone; return False where it did not exist."""
        answer = self._raw("DELETE", path, version, None)
        if answer.http_response.status_code in (204, 404):
            return False
        self._wait("DELETE", path, answer)
        return True

    def upload(self, path: str, version: str, content: bytes, kind: str) -> Json:
        """Replace content that is not JSON, such as a runbook, and wait until it is done."""
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
            raise AzureError(explain(f"{method} {path} was accepted and failed: {exc}")) from exc
        if not poller.done():
            raise AzureError(f"{method} {path} was accepted, and Azure works on it still after {PATIENCE / 60:.0f} min")
        return t.cast(Json, done)

    @staticmethod
    def _good(method: str, path: str, status: int, document: Json) -> Json:
        if status >= 400:
            raise AzureError(explain(f"{method} {path} was answered {status}: {error_text(document)}"))
        return document


def _document(response: t.Any) -> Json:
    try:
        document = json.loads(response.text() or "{}")
    except ValueError:
        return {"error": {"message": response.text()[:500]}}
    return document if isinstance(document, dict) else {"value": document}
