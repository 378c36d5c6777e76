# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module cyclecloud_account: the cloud provider account of a CycleCloud server."""

from __future__ import annotations

import json
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    CLI_SPEC,
    Cli,
    CliError,
    Json,
    Notes,
    alone,
    fingerprint,
    folder,
    quoted,
    same_secret,
    write,
)

# The options, and CycleCloud's record made of them.


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
    """Return everything that is wrong with the options."""
    faults = [
        f"{key} {options[key]!r} is no ID" for key in ("subscription", "tenant") if not _UUID.fullmatch(options[key])
    ]
    if not re.fullmatch(r"[a-z0-9]{3,24}", options["storage_account"]):
        faults.append(f"storage_account {options['storage_account']!r}: 3 to 24 small letters and digits")
    if options["identity"] == "service_principal" and not (options["application_id"] and options["application_secret"]):
        faults.append("a service principal needs application_id and application_secret")
    if options["identity"] == "managed_identity" and (options["application_id"] or options["application_secret"]):
        faults.append("application_id and application_secret are for identity service_principal")
    if options["locker_auth"] == "ManagedIdentity" and not _IDENTITY.fullmatch(options["locker_identity"]):
        faults.append(
            "locker_auth ManagedIdentity needs locker_identity, the resource ID of the user-assigned identity that"
            " nodes read the locker with"
        )
    return faults


def record(options: t.Mapping[str, t.Any]) -> Json:
    """Return the account under CycleCloud's own field names; the secret is among them."""
    fields = {
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
        fields["LockerIdentity"] = options["locker_identity"]
    if options["identity"] == "managed_identity":
        return {**fields, "AzureRMUseManagedIdentity": True}
    return {
        **fields,
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


def noted(fields: Json) -> Json:
    """Return what may be noted of an account: the secret only as a salted fingerprint."""
    return {key: fingerprint(value) if key == SECRET else value for key, value in fields.items()}


def differences(request: Json, before: Json) -> list[str]:
    """Return the fields that an earlier run set to something else."""
    keys = sorted({*request, *before})
    return [key for key in keys if not _same(key, request.get(key), before.get(key))]


def _same(key: str, requested: t.Any, observed: t.Any) -> bool:
    if key == SECRET and isinstance(requested, str):
        return same_secret(requested, observed)
    return bool(requested == observed)


def shown(fields: Json) -> dict[str, t.Any]:
    """Return the fields for a diff, the secret hidden."""
    return {key: "(hidden)" if key == SECRET else value for key, value in sorted(fields.items())}


# The account on the server.


# A locker that is tried again more often fails for longer: Azure counts the attempts.
RETRY = 120.0
_TIMER = ("run_action", "Run:Application.Timer", "-eq", "Name", "plugin.azure.monitor_reference")


class AccountClock(t.Protocol):
    """What is needed of the module time."""

    def time(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class AccountTask:
    """One account; ``options`` are those of module cyclecloud_account."""

    def __init__(self, cli: Cli, options: t.Mapping[str, t.Any], clock: AccountClock | None = None) -> None:
        self.cli, self.options, self.clock = cli, options, clock or t.cast("AccountClock", time)
        self.name: str = options["name"]
        self.locker = f"{self.name}-storage"
        self.fields = record(options)
        self.folder = Path(options["state_dir"])
        self.notes = Notes(options["state_dir"], f"account-{self.name}")

    def look(self) -> tuple[bool, Json]:
        """Return whether the account exists, and what an earlier run set."""
        present = exists(self.cli.read("account", "show", self.name), self.name)
        return present, self.notes.load().get("account", {}) if present else {}

    def bring(self, present: bool) -> None:
        """Have the credentials validated, then make or edit the account; wait for a managed identity to be known."""
        folder(self.folder)
        path = self.folder / "account.json"
        arguments = ("edit", self.name) if present else ("create",)
        end = self.clock.time() + (self.options["identity_timeout"] if self._managed() else 0)
        try:
            write(path, json.dumps(self.fields))
            while True:
                done = self.cli.try_cyclecloud("account", *arguments, "-f", str(path), "--dry-run", timeout=300)
                if not done.problem or self.clock.time() >= end:
                    break
                self.clock.sleep(10)
            if done.problem:
                raise CliError(f"Azure does not take the credentials: {self._hint(done.err or done.out)}")
            outcome = self.cli.try_cyclecloud("account", *arguments, "-f", str(path), timeout=300)
        finally:
            if path.exists():
                path.unlink()
        self._confirm(outcome.err or outcome.out)
        self.notes.save({**self.notes.load(), "account": noted(self.fields)})

    def _managed(self) -> bool:
        return bool(self.options["identity"] == "managed_identity")

    def _confirm(self, output: str) -> None:
        """Check that the account exists, for the exit status of the command does not tell."""
        if not exists(self.cli.read("account", "show", self.name), self.name):
            raise CliError(f"there is no account {self.name} after it was made: {self._hint(output)}")

    def _hint(self, output: str) -> str:
        who = "the VM's managed identity" if self._managed() else "the service principal"
        return (
            f"{self.cli.hidden(output.strip())[-800:]}. Check that {who} has the roles Contributor, Storage Account"
            " Contributor and Storage Blob Data Contributor on the subscription, and that a secret has not expired"
        )

    def await_locker(self) -> bool:
        """Wait for the locker; return whether a failed one had to be tried again."""
        end, retried, first = self.clock.time() + self.options["locker_timeout"], False, ""
        while True:
            rows = self.cli.query(f"select * from Cloud.Locker where Name == {quoted(self.locker)}")  # noqa: S608
            state = str(rows[0].get("State", "")) if rows else "absent"
            if state == "Created":
                self._noted(locker_failed=None)
                return retried
            why = str(rows[0].get("StatusMessage") or rows[0].get("Message") or "") if rows else ""
            first = first or why
            if self.clock.time() >= end:
                raise CliError(self._locker_hint(state, "; then: ".join(dict.fromkeys(filter(None, (first, why))))))
            if state == "Failed":
                retried = self._retry() or retried
            self.clock.sleep(10)

    def _retry(self) -> bool:
        """Try a failed locker again, two minutes after it was first seen so or tried, by earlier runs as well."""
        now = self.clock.time()
        last = self.notes.load().get("locker_failed")
        if last is None or now - float(last) >= RETRY:
            self._noted(locker_failed=now)
        if last is None or now - float(last) < RETRY:
            return False
        self.cli.server("run_action", "Retry:Cloud.Locker", "-eq", "Name", self.locker)
        return True

    def _noted(self, **values: t.Any) -> None:
        notes = self.notes.load()
        if any(notes.get(key) != value for key, value in values.items()):
            folder(self.folder)
            self.notes.save({**notes, **values})

    def _locker_hint(self, state: str, why: str) -> str:
        return (
            f"locker {self.locker} is {state} after {self.options['locker_timeout']} s: {why or 'no cause given'}. The"
            f" storage account {self.options['storage_account']} must not have a hierarchical namespace, the server's"
            " identity needs Storage Blob Data Contributor on it, and with locker_auth SharedAccessKey its shared keys"
            " must be allowed"
        )

    def await_machine_types(self) -> int:
        """Wait until CycleCloud knows the region's machine types; return how many."""
        types = MachineTypes(self.cli, self.options["location"], self.clock)
        return types.wait([], float(self.options["machine_types_timeout"]))


class MachineTypes:
    """What CycleCloud knows of a region. It reads the list from Azure into the first table and works it up into the
    second, one type after the other, and makes nodes only of types that are in both."""

    TABLES = ("Azure.MachineType", "Cloud.MachineType")

    def __init__(self, cli: Cli, region: str, clock: AccountClock | None = None) -> None:
        self.cli, self.region, self.clock = cli, region, clock or t.cast("AccountClock", time)

    def wait(self, names: t.Iterable[str], limit: float) -> int:
        """Wait for these types, or for any where none is named; return how many the region has."""
        requested = sorted({str(name) for name in names if name})
        begin, kicked = self.clock.time(), -RETRY
        while True:
            known = {table: self._known(table) for table in self.TABLES}
            lacking = self._lacking(requested, known)
            if not lacking:
                return len(known[self.TABLES[0]])
            passed = self.clock.time() - begin
            if passed >= limit:
                raise CliError(
                    f"{'; '.join(lacking)} after {limit:g} s (region {quoted(self.region)}): the identity may lack"
                    " Microsoft.Compute/skus/read, the size may not be offered there or be misspelled, or the provider"
                    " Microsoft.Compute is not registered in the subscription"
                )
            if passed - kicked >= RETRY:
                kicked = passed
                self.cli.server(*_TIMER)
            self.clock.sleep(10)

    def _known(self, table: str) -> set[str]:
        rows = self.cli.query(f"select Name from {table} where Location == {quoted(self.region)}")  # noqa: S608
        return {str(row.get("Name")).lower() for row in rows}

    @staticmethod
    def _lacking(requested: t.Sequence[str], known: t.Mapping[str, set[str]]) -> list[str]:
        if not requested:
            return [f"CycleCloud knows no machine type in {table}" for table, names in known.items() if not names]
        lacking = {table: [n for n in requested if n.lower() not in names] for table, names in known.items()}
        return [f"CycleCloud knows no {', '.join(names)} in {table}" for table, names in lacking.items() if names]


def bring(options: t.Mapping[str, t.Any], check: bool) -> Json:
    """Make or edit the account, and wait for its locker and machine types."""
    wrong = problems(options)
    if wrong:
        raise CliError("; ".join(wrong))
    cli = Cli(options)
    cli.secrets = [options["application_secret"]]
    task = AccountTask(cli, options)
    with alone(options["state_dir"], check):
        try:
            present, before = task.look()
        except CliError:
            if not check:
                raise
            present, before = False, {}  # an earlier task of the play would have set up the command line
        different = differences(task.fields, before)
        if different and not check:
            task.bring(present)
    retried, machine_types = False, 0
    if not check:
        retried = task.await_locker()
        machine_types = task.await_machine_types()
    diff = {"before": _text(shown(before)), "after": _text(shown(task.fields))}
    public = {key: value for key, value in task.fields.items() if key != SECRET}
    result = {"account": public, "locker": task.locker, "machine_types": machine_types}
    return {"changed": bool(different or retried), "diff": diff if different else {}, **result}


def _text(fields: Json) -> str:
    return "".join(f"{key}: {value}\n" for key, value in fields.items())
