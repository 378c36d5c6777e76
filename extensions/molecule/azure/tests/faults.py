# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults at each step of the way into Azure: a run stops with the cause, the next completes, nothing is there twice.

By hand, `make azure-faults`: hours for all of them. Parts of names as arguments choose some.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import itertools
import json
import os
import re
import shlex
import signal
import sys
import time
import typing as t
import urllib.parse
import urllib.request
from pathlib import Path

import stopping
from conftest import STATE, Cloud, Run, machine
from patience import wait_for


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
# Requests of CycleCloud's commands, as its emulator names them, and one of its REST interface.
CYCLECLOUD = ("/cli/account", "/cli/project", "/cli/import_cluster", "/cli/start_cluster", "/clusters/train/status")
# Those of its end.
CYCLECLOUD_END = ("/cli/terminate_cluster", "/cli/delete_cluster")
DO = ("reset_before", "reset_after", {"status": 500}, {"status_after": 500})
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
    later = {"error": "AllocationFailed", "later": True}
    found["AllocationFailed after the machine was accepted"] = Fault(_rule("machine", later), "AllocationFailed")
    for step, codes in ERRORS.items():
        for code in codes:
            # A new principal is waited for.
            told = ANY if code == "PrincipalNotFound" else code
            found[f"{code} for the {step}"] = Fault(_rule(step, {"error": code}), told)
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


def _arm(cloud: Cloud, method: str, path: str, body: bytes | None = None) -> t.Any:
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
    with opener.open(urllib.request.Request(url, body, headers, method=method), timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text.strip() else None


@contextlib.contextmanager
def locked(cloud: Cloud, notes: str) -> t.Iterator[None]:
    """Have a lock of an administrator on the resource group."""
    path = "/resourceGroups/train-rg/providers/Microsoft.Authorization/locks/theirs?api-version=2016-09-01"
    _arm(cloud, "PUT", path, f'{{"properties": {{"level": "CanNotDelete", "notes": "{notes}"}}}}'.encode())
    try:
        yield
    finally:
        _arm(cloud, "DELETE", path)


def due(cloud: Cloud) -> None:
    """Let the day have come on which the cluster may go, and the job of the schedule begin that knows no more of it."""
    for group in ("train-rg", "train-expiry-rg"):
        path = f"/resourceGroups/{group}?api-version=2021-04-01"
        tags = {**_arm(cloud, "GET", path)["tags"], "expires-on": "2020-01-01T00:00:00Z"}
        _arm(cloud, "PATCH", path, json.dumps({"tags": tags}).encode())


def scheduled(cloud: Cloud) -> dict[str, t.Any]:
    """Have the schedule's time come, and return the job when it has ended."""
    account = "/resourceGroups/train-expiry-rg/providers/Microsoft.Automation/automationAccounts/train-expiry"
    listed = _arm(cloud, "GET", f"{account}/schedules?api-version=2023-11-01")["value"]
    (made,) = cloud.ask("fire", {"schedule": listed[-1]["name"]})
    ended: dict[str, dict[str, t.Any]] = {}
    wait_for("the job to end", lambda: ended.update({one["id"]: one for one in cloud.ask("jobs")}) or made in ended, 90)
    return ended[made]


def expired(cloud: Cloud) -> dict[str, t.Any]:
    """Make what azure_infra makes, with a day on which it goes, and return the job of that day."""
    later = f"{datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}"
    schedule = {"azure_teardown_expires_on": later, "azure_teardown_schedule": True}
    for do in (lambda: infra(cloud), lambda: cloud.play("expire.yml", **schedule)):
        run = do()
        if run.rc:
            raise AssertionError(run.tail)
    due(cloud)
    return scheduled(cloud)


def stops(cloud: Cloud, fault: stopping.Stopping) -> list[str]:
    """Put a fault back, see that it ends the journey and where, and take down what there is."""
    if not fault.scheduled:
        machine("rm -f /usr/local/bin/cyclecloud")  # on a machine that Azure has just made there is none
    whole = cloud.tree
    with stopping.put_back(fault) as cloud.tree:
        if fault.scheduled:
            job = expired(cloud)
            ended, told = job["status"] != "Completed", job["output"]
        else:
            run = cloud.play("site.yml", timeout=1500)
            ended, told = run.rc != 0, run.output
    cloud.tree = whole
    wrong = [] if ended else ["the journey came to its end"]
    if not re.search(fault.told, " ".join(told.split())):
        wrong.append(f"stopped without the cause: {told[-800:]}")
    task = re.findall(r"^TASK \[(.*?)\] \*", told, re.MULTILINE)[-1:]
    print(f"       stops at: {task[0] if task else 'the job of the schedule'}", flush=True)
    return wrong + emptied(cloud)


def secrets_in_files(cloud: Cloud) -> list[str]:
    """Return files with a secret that are not for their owner alone, and any in which no secret has a place."""
    found = []
    for path in sorted(STATE.rglob("*")):
        if not path.is_file() or path.is_symlink() or (STATE / "azure") in path.parents:
            continue  # the emulator itself has to know the secret
        if path.name == "slurmdbd.conf" and path.stat().st_mode & 0o777 == 0o600:
            continue  # of the scheduler's disk
        data = path.read_bytes()
        found += [f"{path}: {name}" for name, secret in cloud.secrets.items() if secret.encode() in data]
    places = "/etc /opt /root /home /var /tmp /run /usr/local"
    for name, secret in cloud.secrets.items():
        wanted = machine(f"grep -rlsF -e '{secret}' {places} | xargs -r stat -c '%a %n'").stdout.splitlines()
        found += [f"{line}: {name}" for line in wanted if not line.startswith("600 ")]
    return found


def infra(cloud: Cloud) -> Run:
    return cloud.play("provision_steps/azure.yml", "--tags=azure_infra")


def completed(cloud: Cloud, again: t.Callable[[Cloud], Run]) -> list[str]:
    """Go on, and take it down; returns what was wrong."""
    second = again(cloud)
    wrong = [f"the next run did not complete: {second.tail[-800:]}"] if second.rc else []
    wrong += [f"twice: {found}" for found in duplicates(cloud)]
    return wrong + emptied(cloud)


def emptied(cloud: Cloud) -> list[str]:
    last = cloud.destroy()
    return [f"destroy left {cloud.leftovers}: {last.tail[-800:]}"] if last.rc or cloud.leftovers else []


def one(cloud: Cloud, fault: Fault) -> list[str]:
    """Strike once, go on, take it down."""
    cloud.ask("faults", [fault.rule])
    first = infra(cloud)
    cloud.ask("faults", [])
    wrong = []
    if first.rc == 0 and fault.told != ANY:  # Azure's libraries repeat what may be repeated
        wrong.append("was not noticed")
    if first.rc and not re.search(fault.told, first.output):
        wrong.append(f"stopped without the cause: {first.tail[-800:]}")
    return wrong + completed(cloud, infra)


def half(cloud: Cloud, step: str) -> list[str]:
    """Take down what there is when a step was refused."""
    cloud.ask("faults", [_rule(step, {"error": "AuthorizationFailed"})])
    first = infra(cloud)
    cloud.ask("faults", [])
    return [*([] if first.rc else ["was not noticed"]), *emptied(cloud)]


def killed(cloud: Cloud, step: str) -> list[str]:
    """Kill the controller, with all that it started, when a step was asked for and is not answered yet."""
    cloud.ask("faults", [{**_rule(step, {"hang": 15}), "times": 1}])
    asked = len(cloud.ask("log"))
    run, dummy = cloud.start("provision_steps/azure.yml", "--tags=azure_infra")
    method, path = STEPS[step]
    end = time.monotonic() + 300
    while run.poll() is None and time.monotonic() < end:
        if any(one["method"] == method and re.search(path, one["path"], re.I) for one in cloud.ask("log")[asked:]):
            break
        time.sleep(0.2)
    for process in family(run.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    run.wait()
    cloud.ask("faults", [])
    return completed(cloud, infra)


def family(parent: int) -> list[int]:
    """Return a process and all below it; ansible-playbook's workers have sessions of their own."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            above = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(above, []).append(int(place.name))
    found = [parent]
    for process in found:
        found += children.get(process, [])
    return found


def cyclecloud(cloud: Cloud, rules: t.Any) -> list[str]:
    """Strike in CycleCloud, which was installed by a run before, then as above."""
    cycle("faults", rules)
    first = cloud.provision()
    cycle("faults", [])
    wrong = [] if first.rc == 0 or "CycleCloud" in first.tail else [f"stopped without the cause: {first.tail[-800:]}"]
    return wrong + completed(cloud, Cloud.provision)


def cyclecloud_end(cloud: Cloud, rules: t.Any) -> list[str]:
    """Strike while the cluster is taken down."""
    first = cloud.provision()
    if first.rc:
        return [f"there is nothing to take down: {first.tail[-800:]}", *emptied(cloud)]
    cycle("faults", rules)
    last = cloud.destroy()
    cycle("faults", [])
    wrong = [] if last.rc == 0 or "_cluster" in last.tail else [f"stopped without the cause: {last.tail[-800:]}"]
    return wrong + emptied(cloud)


def cycle(what: str, body: t.Any) -> None:
    """Tell the emulated CycleCloud something."""
    program = (
        "import ssl, sys, urllib.request as u; c = ssl._create_unverified_context();"
        f" u.urlopen(u.Request('https://localhost:8443/_emulator/{what}', sys.argv[1].encode(),"
        " {'X-Emulator': '1', 'Content-Type': 'application/json'}), context=c)"
    )
    done = machine(f"python3 -c {shlex.quote(program)} {shlex.quote(json.dumps(body))}")
    if done.returncode:
        raise SystemExit(done.stderr)


def cases(cloud: Cloud) -> t.Iterator[tuple[str, t.Callable[[], list[str]]]]:
    """Return what can be tried, by name."""
    for name, put_back in stopping.STOPPING.items():
        yield f"stopping: {name}", lambda put_back=put_back: stops(cloud, put_back)
    for name, fault in FAULTS.items():
        yield name, lambda fault=fault: one(cloud, fault)
    for step in STEPS:
        yield f"destroyed without the {step}", lambda step=step: half(cloud, step)
        yield f"killed at the {step}", lambda step=step: killed(cloud, step)
    for commands, strike in ((CYCLECLOUD, cyclecloud), (CYCLECLOUD_END, cyclecloud_end)):
        for command, do in itertools.product(commands, DO):
            rule = [{"match": {"path": command}, "do": do}]
            yield f"CycleCloud {command} {json.dumps(do)}", lambda rule=rule, strike=strike: strike(cloud, rule)


def main(words: list[str]) -> int:
    cloud = Cloud()
    bad = 0
    begun = False
    for name, case in cases(cloud):
        if words and not any(word in name for word in words):
            continue
        if name.startswith("CycleCloud") and not begun:  # it has to be installed to be told about faults
            begun = cloud.provision().rc == 0 and not emptied(cloud)
        begin = time.monotonic()
        wrong = case()
        print(
            f"{'FAILED' if wrong else 'ok    '} {name}, {time.monotonic() - begin:.0f} s {'; '.join(wrong)}", flush=True
        )
        bad += bool(wrong)
    told = [*cloud.seen.values(), *secrets_in_files(cloud)]
    print(f"{'FAILED' if told else 'ok    '} no secret was seen anywhere {'; '.join(told)}")
    return bad + bool(told)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(min(main(sys.argv[1:]), 100))
