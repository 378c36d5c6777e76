# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cloud account: options to CycleCloud's record, and what to do about it. Pure; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import CLI_SPEC, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import fingerprint, same_secret

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDENTITY = re.compile(r"/subscriptions/.+/userAssignedIdentities/[^/]+", re.IGNORECASE)
SECRET = "AzureRMApplicationSecret"  # noqa: S105 - the name of a field


SPEC: Json = {
    "name": {"type": "str", "default": "azure"},
    "subscription": {"type": "str", "required": True},
    "tenant": {"type": "str", "required": True},
    "environment": {"type": "str", "choices": ["public", "usgov", "china", "germany"], "default": "public"},
    "location": {"type": "str", "required": True},
    "resource_group": {"type": "str", "required": True},
    "storage_account": {"type": "str", "required": True},
    "container": {"type": "str", "default": "cyclecloud"},
    "locker_auth": {"type": "str", "choices": ["ManagedIdentity", "SharedAccessKey"], "default": "ManagedIdentity"},
    "locker_identity": {"type": "str", "default": ""},
    "default": {"type": "bool", "default": True},
    "accept_marketplace_terms": {"type": "bool", "default": False},
    "identity": {"type": "str", "choices": ["managed_identity", "service_principal"], "default": "managed_identity"},
    "application_id": {"type": "str", "default": ""},
    "application_secret": {"type": "str", "default": "", "no_log": True},
    "identity_timeout": {"type": "int", "default": 300},
    "locker_timeout": {"type": "int", "default": 1800},
    "machine_types_timeout": {"type": "int", "default": 1800},
    **CLI_SPEC,
}


def problems(options: t.Mapping[str, t.Any]) -> list[str]:
    """Everything that is wrong with the options, all at once."""
    found = [
        f"{key} {options[key]!r} is no ID" for key in ("subscription", "tenant") if not _UUID.fullmatch(options[key])
    ]
    if not re.fullmatch(r"[a-z0-9]{3,24}", options["storage_account"]):
        found.append(f"storage_account {options['storage_account']!r}: 3 to 24 small letters and digits")
    if options["identity"] == "service_principal" and not (options["application_id"] and options["application_secret"]):
        found.append("a service principal needs application_id and application_secret")
    if options["identity"] == "managed_identity" and (options["application_id"] or options["application_secret"]):
        found.append("application_id and application_secret are for identity service_principal")
    if options["locker_auth"] == "ManagedIdentity" and not _IDENTITY.fullmatch(options["locker_identity"]):
        found.append(
            "locker_auth ManagedIdentity needs locker_identity, the resource ID of the user-assigned identity that"
            " nodes read the locker with"
        )
    return found


def record(options: t.Mapping[str, t.Any]) -> Json:
    """CycleCloud's own field names; the secret is among them."""
    made = {
        "Name": options["name"],
        "Provider": "azure",
        "ProviderId": options["subscription"],
        "AzureRMSubscriptionId": options["subscription"],
        "AzureRMTenantId": options["tenant"],
        "Environment": options["environment"],
        "DefaultAccount": options["default"],
        "Location": options["location"],
        "AzureResourceGroup": options["resource_group"],
        "RMStorageAccount": options["storage_account"],
        "RMStorageContainer": options["container"],
        "AcceptMarketplaceTerms": options["accept_marketplace_terms"],
        "LockerAuthMode": options["locker_auth"],
    }
    if options["locker_auth"] == "ManagedIdentity":
        made["LockerIdentity"] = options["locker_identity"]
    if options["identity"] == "managed_identity":
        return {**made, "AzureRMUseManagedIdentity": True}
    return {
        **made,
        "AzureRMUseManagedIdentity": False,
        "AzureRMApplicationId": options["application_id"],
        SECRET: options["application_secret"],
    }


def exists(shown: str, name: str) -> bool:
    """Read ``cyclecloud account show``, which ends with 0 also when there is no such account: only its text tells.

    It prints the account as ``key: value`` lines, one of them with the name.
    """
    if re.search(r"not found|does not exist|no such|could not find|unknown account", shown, re.IGNORECASE):
        return False
    return bool(re.search(rf"^\W*[\w .]*:\s*\W?{re.escape(name)}\W?\s*$", shown, re.MULTILINE))


def noted(wanted: Json) -> Json:
    """What may be kept of an account: the secret only as a salted fingerprint."""
    return {key: fingerprint(value) if key == SECRET else value for key, value in wanted.items()}


def differences(wanted: Json, before: Json) -> list[str]:
    """The fields that an earlier run set to something else."""
    keys = sorted({*wanted, *before})
    return [key for key in keys if not _same(key, wanted.get(key), before.get(key))]


def _same(key: str, want: t.Any, have: t.Any) -> bool:
    if key == SECRET and isinstance(want, str):
        return same_secret(want, have)
    return bool(want == have)


def shown(one: Json) -> dict[str, t.Any]:
    """For a diff: the secret is only told to be there."""
    return {key: "(hidden)" if key == SECRET else value for key, value in sorted(one.items())}
