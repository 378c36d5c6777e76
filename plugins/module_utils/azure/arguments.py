# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the modules are told which Azure to talk to: the same options and variables as azure.azcollection. Private."""

from __future__ import annotations

import configparser
import typing as t
from pathlib import Path

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
    """Azure cannot be asked or does not do it; the text is fit for the user."""


class Settings(t.NamedTuple):
    """Which identity asks which Azure."""

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


def settings(params: t.Mapping[str, t.Any], environ: t.Mapping[str, str], home: Path | None = None) -> Settings:
    """Join options, variables and ``~/.azure/credentials`` in the order in which azure.azcollection does."""
    said = {name: str(value) for name, value in _joined(params, environ, home).items() if value not in (None, "")}
    if not said.get("subscription_id"):
        raise AzureError("Which subscription? Set AZURE_SUBSCRIPTION_ID or the option subscription_id.")
    return Settings(
        _source(said),
        said["subscription_id"],
        said.get("tenant", ""),
        said.get("client_id", ""),
        said.get("secret", ""),
        said.get("x509_certificate_path", ""),
        said.get("cloud_environment", "AzureCloud"),
        said.get("adfs_authority_url", ""),
        said.get("cert_validation_mode", "validate") == "validate",
        said.get("disable_instance_discovery", "").lower() not in _TRUE,
    )


def _joined(params: t.Mapping[str, t.Any], environ: t.Mapping[str, str], home: Path | None) -> dict[str, t.Any]:
    given = {name: params[name] for name in SPEC if params.get(name) is not None}
    variables = {name: environ.get(variable) for name, variable in _VARIABLES.items() if environ.get(variable)}
    source = given.get("auth_source") or variables.get("auth_source") or "auto"
    profile = given.get("profile") or variables.get("profile")
    if source == "env":
        given = {}
    file = _profile(home, profile or "default") if profile or source == "credential_file" else {}
    if not file and source == "auto" and not ({**variables, **given}).get("subscription_id"):
        file = _profile(home, "default")
    return {**file, **({} if source == "credential_file" else variables), **given, "auth_source": source}


def _profile(home: Path | None, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read((home or Path.home()) / ".azure/credentials")
    except (configparser.Error, UnicodeError) as exc:
        raise AzureError(f"~/.azure/credentials cannot be read: {str(exc).splitlines()[0]}") from exc
    return {key: value for key, value in parser[name].items() if key in SPEC} if name in parser else {}


def _source(said: t.Mapping[str, str]) -> str:
    source = said.get("auth_source", "auto")
    if source in ("cli", "msi"):
        return source
    if said.get("client_id") and said.get("tenant"):
        if said.get("secret"):
            return "secret"
        if said.get("x509_certificate_path"):
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
