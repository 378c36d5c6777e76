# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cloud accounts and lockers, as `cyclecloud account` and `cyclecloud locker` treat them."""

from __future__ import annotations

import json
import typing as t

from . import azure
from .store import Json, Store, UserError

if t.TYPE_CHECKING:
    from .server import Home

FIELDS = set(
    """Name Provider ProviderId AzureRMSubscriptionId AzureRMTenantId Environment DefaultAccount Location
    AzureResourceGroup RMStorageAccount RMStorageContainer AcceptMarketplaceTerms LockerAuthMode LockerIdentity
    AzureRMApplicationId AzureRMApplicationSecret AzureRMUseManagedIdentity AzureRMUseWorkloadIdentity
    PredefinedCredentials""".split()
)
SECRET = "AzureRMApplicationSecret"
ENVIRONMENTS = {"public", "usgov", "china", "germany"}


def _account(store: Store, given: t.Any, old: Json | None = None) -> Json:
    if not isinstance(given, dict) or set(given) - FIELDS:
        unknown = sorted(set(given) - FIELDS) if isinstance(given, dict) else given
        raise UserError(f"Invalid account definition: unknown attributes {unknown}")
    found = {**(old or {}), **given}
    wanted = ["Name", "Provider", "AzureRMSubscriptionId", "Environment", "RMStorageAccount", "RMStorageContainer"]
    if not found.get("AzureRMUseManagedIdentity") and not found.get("AzureRMUseWorkloadIdentity"):
        wanted += ["AzureRMTenantId", "AzureRMApplicationId", SECRET]
    missing = [name for name in wanted if not found.get(name)]
    if missing:
        raise UserError(f"Invalid account definition: missing {', '.join(missing)}")
    if found["Provider"] != "azure" or found["Environment"] not in ENVIRONMENTS:
        raise UserError(
            "Invalid account definition: Provider is azure, Environment one of public, usgov, china, germany"
        )
    if found.get("LockerAuthMode", "ManagedIdentity") not in {"ManagedIdentity", "SharedAccessKey"}:
        raise UserError("Invalid account definition: LockerAuthMode is ManagedIdentity or SharedAccessKey")
    if SECRET in given:
        found[SECRET] = store.seal(str(given[SECRET]))
    return found


def _content(options: Json) -> t.Any:
    if options.get("content") is None:
        raise UserError("prompts are not emulated: give -f FILE")
    try:
        return json.loads(options["content"])
    except ValueError as exc:
        raise UserError(f"The account definition is no JSON: {exc}") from None


def create(home: Home, store: Store, options: Json) -> str:
    made = _account(store, _content(options))
    name = made["Name"]
    if name in store.state["accounts"]:
        raise UserError(f"Account {name} already exists")
    _validate(home, made)
    if options.get("dry_run"):
        return f"Account {name} is valid; nothing was created."
    made["_since"] = store.now()
    store.state["accounts"][name] = made
    _locker(store, made)
    return f"Credentials: {name} created.\nCreating locker {name}-storage."


def _locker(store: Store, account: Json) -> None:
    url = f"az://{account['RMStorageAccount']}/{account['RMStorageContainer']}"
    one = {"AdType": "Cloud.Locker", "Name": f"{account['Name']}-storage", "AccountName": account["Name"], "URL": url}
    failure = azure.locker_problem(store, account)
    store.put({**one, "State": "Creating", "Message": "", "_since": store.now(), "_failure": failure})


def _validate(home: Home, account: Json) -> None:
    problem = azure.credentials_problem(home.store, account)
    if problem:
        raise UserError(f"Could not validate credentials: {problem}")


def edit(home: Home, store: Store, options: Json) -> str:
    old = store.state["accounts"].get(options["name"])
    if old is None:
        raise UserError(f"Could not find account {options['name']}")
    kept = {key: value for key, value in old.items() if not key.startswith("_")}
    given = _content(options)
    made = _account(store, given, kept)
    if made["Name"] != options["name"]:
        raise UserError("An account cannot be renamed")
    _validate(home, made)
    if options.get("dry_run"):
        return "The definition is valid; nothing was changed."
    store.state["accounts"][options["name"]] = {**made, "_since": old["_since"]}
    moved = ("RMStorageAccount", "RMStorageContainer", "LockerAuthMode", "LockerIdentity")
    if any(made.get(key) != old.get(key) for key in moved):
        _locker(store, made)
    return f"Credentials: {options['name']} updated."


def delete(dummy: Home, store: Store, options: Json) -> str:
    name = options["name"]
    if name not in store.state["accounts"]:
        raise UserError(f"Could not find account {name}")
    users = [one["name"] for one in store.state["clusters"].values() if one["account"] == name]
    if users and not options.get("force"):
        raise UserError(f"Account {name} is in use by {', '.join(users)}")
    del store.state["accounts"][name]
    store.drop("Cloud.Locker", AccountName=name)
    return f"Deleted account {name}."


def show(dummy: Home, store: Store, options: Json) -> str:
    found = store.state["accounts"].get(options["name"])
    if found is None:
        return f"No account named {options['name']!r} was found."  # and the exit status is 0: so it is there
    rows = [
        f"    {key}: {value}" for key, value in sorted(found.items()) if key not in {SECRET, "Name"} and key[0] != "_"
    ]
    return "\n".join([f"Credentials: {options['name']}", *rows])


def list(dummy: Home, store: Store, options: Json) -> str:
    return "\n".join(sorted(store.state["accounts"])) or "No accounts found."


def lockers(dummy: Home, store: Store, options: Json) -> str:
    return "\n".join(f"{one['Name']} ({one['URL']})" for one in store.find("Cloud.Locker")) or "No lockers found."


def locker(dummy: Home, store: Store, options: Json) -> str:
    for one in store.find("Cloud.Locker", Name=options["name"]):
        return "\n".join(f"{key}: {one[key]}" for key in ("Name", "URL", "AccountName", "State"))
    raise UserError(f"Locker {options['name']} not found")
