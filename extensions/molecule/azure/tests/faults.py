#!/usr/bin/env python3
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults at each step of the way into Azure: a run stops with the cause, the next completes, nothing is there twice.

By hand, on a scenario that was created and prepared (an hour for all of it):

    molecule create -s azure && molecule prepare -s azure
    extensions/molecule/azure/tests/faults.py [name or part of it ...]
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import signal
import sys
import time
import typing as t
import urllib.parse
import urllib.request
from pathlib import Path

from conftest import STATE, Cloud, machine


class Fault(t.NamedTuple):
    """A rule of the emulator and what a run that it stops says."""

    rule: dict[str, t.Any]
    told: str


# Step: method and path of the request that makes it.
STEPS = {
    "group": ("PUT", r"/resourcegroups/train-rg$"),
    "security group": ("PUT", r"/networkSecurityGroups/train-server-nsg$"),
    "gateway": ("PUT", r"/natGateways/train-nat$"),
    "network": ("PUT", r"/virtualNetworks/train-vnet$"),
    "subnet": ("PUT", r"/subnets/compute$"),
    "account": ("PUT", r"/storageAccounts/[^/]+$"),
    "container": ("PUT", r"/containers/cyclecloud$"),
    "identity": ("PUT", r"/userAssignedIdentities/train-locker$"),
    "interface": ("PUT", r"/networkInterfaces/train-cyclecloud-nic$"),
    "machine": ("PUT", r"/virtualMachines/train-cyclecloud$"),
    "role assignment": ("PUT", r"/roleAssignments/[^/]+$"),
}
# Errors of the catalogue, by the step at which Azure gives them.
ERRORS = {
    "group": ["AuthorizationFailed", "SubscriptionNotFound", "ResourceGroupBeingDeleted", "InvalidAuthenticationToken"],
    "network": ["RequestDisallowedByPolicy", "ScopeLocked", "MissingSubscriptionRegistration"],
    "account": ["StorageAccountAlreadyTaken"],
    "machine": ["QuotaExceeded", "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed",
                "OverconstrainedAllocationRequest", "OperationNotAllowed", "LinkedAuthorizationFailed",
                "MarketplacePurchaseEligibilityFailed"],
    "role assignment": ["PrincipalNotFound", "RoleAssignmentUpdateNotPermitted", "AuthorizationFailed"],
}  # fmt: skip
ANY = r"the next run goes on|run again|Nothing was changed|were? tried|azure_infra : Stop"


def _rule(step: str, do: dict[str, t.Any]) -> dict[str, t.Any]:
    method, path = STEPS[step]
    # Azure's libraries repeat a request four times: a fault that is to be seen lasts longer.
    return {"match": {"method": method, "path": f"(?i){path}"}, "times": 8, "do": do}


def _all() -> dict[str, Fault]:
    found = {}
    for step in STEPS:
        found[f"reset before the {step} was made"] = Fault(_rule(step, {"reset": "before"}), ANY)
        found[f"reset after the {step} was made"] = Fault(_rule(step, {"reset": "after"}), ANY)
        found[f"500 after the {step} was made"] = Fault(_rule(step, {"status": 500, "after": True}), ANY)
    found["throttled at the network"] = Fault(_rule("network", {"throttle": 1}), ANY)
    found["no answer for a minute at the network"] = Fault({**_rule("network", {"hang": 60}), "times": 1}, ANY)
    for step, codes in ERRORS.items():
        for code in codes:
            found[f"{code} for the {step}"] = Fault(_rule(step, {"error": code}), code)
    return found


FAULTS = _all()


def duplicates(cloud: Cloud) -> list[str]:
    """Return roles that are given twice to the same principal at the same scope."""
    seen: collections.Counter[str] = collections.Counter()
    for identifier, found in cloud.ask("state")["resources"].items():
        if "/roleassignments/" in identifier:
            said = found["properties"]
            scope = identifier.split("/providers/microsoft.authorization/")[0]
            seen[f"{scope} {said['principalId']} {said['roleDefinitionId'].rsplit('/', 1)[-1]}"] += 1
    return [key for key, count in seen.items() if count > 1]


def _arm(cloud: Cloud, method: str, path: str, body: bytes | None = None) -> None:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=cloud.trust)
    )
    asked = {
        "grant_type": "client_credentials",
        "client_id": cloud.environment["AZURE_CLIENT_ID"],
        "client_secret": cloud.environment["AZURE_SECRET"],
        "scope": f"{cloud.told['url']}/.default",
    }
    login = f"{cloud.told['url']}/{cloud.told['tenant']}/oauth2/v2.0/token"
    with opener.open(urllib.request.Request(login, urllib.parse.urlencode(asked).encode()), timeout=30) as answer:
        token = json.load(answer)["access_token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url = f"{cloud.told['url']}/subscriptions/{cloud.told['subscription']}{path}"
    with opener.open(urllib.request.Request(url, body, headers, method=method), timeout=30):
        pass


@contextlib.contextmanager
def locked(cloud: Cloud, notes: str) -> t.Iterator[None]:
    """Have a lock of an administrator on the resource group."""
    path = "/resourceGroups/train-rg/providers/Microsoft.Authorization/locks/theirs?api-version=2016-09-01"
    _arm(cloud, "PUT", path, f'{{"properties": {{"level": "CanNotDelete", "notes": "{notes}"}}}}'.encode())
    try:
        yield
    finally:
        _arm(cloud, "DELETE", path)


def secrets_in_files(cloud: Cloud) -> list[str]:
    """Return files with a secret that are not for their owner alone, and any in which no secret has a place."""
    found = []
    for path in sorted(STATE.rglob("*")):
        if not path.is_file() or path.is_symlink() or (STATE / "azure") in path.parents:
            continue  # the emulator itself has to know the secret
        data = path.read_bytes()
        found += [f"{path}: {name}" for name, secret in cloud.secrets.items() if secret.encode() in data]
    places = "/etc /opt /root /home /var /tmp /run /usr/local"
    for name, secret in cloud.secrets.items():
        wanted = machine(f"grep -rlsF -e '{secret}' {places} | xargs -r stat -c '%a %n'").stdout.splitlines()
        found += [f"{line}: {name}" for line in wanted if not line.startswith("600 ")]
    return found


def one(cloud: Cloud, name: str, fault: Fault) -> list[str]:
    """Strike once, go on, take it down; returns what was wrong."""
    wrong = []
    cloud.ask("faults", [fault.rule])
    first = cloud.play("provision_steps/azure.yml", "--tags=azure_infra")
    cloud.ask("faults", [])
    if first.rc == 0 and fault.told != ANY:  # Azure's libraries repeat what may be repeated
        wrong.append("was not noticed")
    if first.rc and not re.search(fault.told, first.output):
        wrong.append(f"stopped without the cause: {first.tail[-400:]}")
    second = cloud.play("provision_steps/azure.yml", "--tags=azure_infra")
    if second.rc:
        wrong.append(f"the next run did not complete: {second.tail[-400:]}")
    wrong += [f"twice: {found}" for found in duplicates(cloud)]
    last = cloud.destroy()
    if last.rc or cloud.leftovers:
        wrong.append(f"destroy left {cloud.leftovers}: {last.tail[-400:] if last.rc else ''}")
    return wrong


def killed(cloud: Cloud, seconds: float) -> list[str]:
    """Kill the controller in the middle, then as above."""
    run, dummy = cloud.start("provision_steps/azure.yml", "--tags=azure_infra")
    time.sleep(seconds)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    second = cloud.play("provision_steps/azure.yml", "--tags=azure_infra")
    last = cloud.destroy()
    wrong = [f"the next run did not complete: {second.tail[-400:]}"] if second.rc else []
    return wrong + ([f"destroy left {cloud.leftovers}"] if last.rc or cloud.leftovers else [])


def main(words: list[str]) -> int:
    cloud = Cloud()
    bad = 0
    for name, fault in FAULTS.items():
        if words and not any(word in name for word in words):
            continue
        wrong = one(cloud, name, fault)
        print(f"{'FAILED' if wrong else 'ok    '} {name} {'; '.join(wrong)}", flush=True)
        bad += bool(wrong)
    for seconds in (5, 10, 20, 40) if not words or "killed" in words else ():
        wrong = killed(cloud, seconds)
        print(f"{'FAILED' if wrong else 'ok    '} killed after {seconds} s {'; '.join(wrong)}", flush=True)
        bad += bool(wrong)
    return bad


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(min(main(sys.argv[1:]), 100))
