# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply a bundle to this node: what bootstrap.sh starts. Runs on the node, without AnsibleModule."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import sys
import time
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock, replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

# The node that configures itself: its files, its units, its gate. Runs on the node.


UNITS = {
    "hpcai-node.service": """[Unit]
Description=Lets slurmd start where this node has configured itself
After=local-fs.target hpcai-scratch.service hpcai-gpu-clocks.service hpcai-node-health.service
Before=slurmd.service

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh {current}/bootstrap.sh --boot

[Install]
WantedBy=multi-user.target
""",
    # No order with slurmd, which it starts.
    "hpcai-node-apply.service": """[Unit]
Description=Configures this node
After=network-online.target remote-fs.target
Wants=network-online.target

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh {current}/bootstrap.sh
""",
}
_JETPACK = "/opt/cycle/jetpack/bin/jetpack"
_MOMENT = 60.0


class NodeHost:
    """A machine below a root directory; tests have one of their own."""

    def __init__(self, root: str = "/", command: t.Callable[..., Outcome] = run) -> None:
        self.root, self.command = Path(root), command
        self.state = self.root / "var/lib/hpcai/node"
        self.run = self.root / "run/hpcai"
        self.gate = self.run / "node-ready"
        self.held = self.run / "slurmd-held"
        self.progress = self.run / "node-progress.json"
        self.result = self.state / "result.json"
        self.log = self.root / "var/log/hpcai-node.log"
        self.current = self.state / "current"

    def machine(self) -> str:
        with contextlib.suppress(OSError):
            return (self.root / "etc/machine-id").read_text(encoding="utf-8").strip()
        return ""

    def name(self) -> str:
        return socket.gethostname().split(".")[0]

    def systemctl(self, *words: str) -> Outcome:
        return self.command(["systemctl", *words], _MOMENT)

    def settle(self, bundle: Path, digest: str) -> Path:
        """Copy the bundle to where it stays, and remove others; return that path."""
        home = self.state / "bundles" / digest[:12]
        home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if bundle != home:
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(bundle, home, symlinks=True)
        self._point(home)
        for other in home.parent.iterdir():
            if other != home:
                shutil.rmtree(other, ignore_errors=True)
        return home

    def _point(self, home: Path) -> None:
        aside = self.current.with_name(".current")
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        aside.symlink_to(home)
        aside.replace(self.current)

    def units(self) -> None:
        """Write and enable the units that open the gate at every boot."""
        stale = False
        for name, text in UNITS.items():
            path = self.root / "etc/systemd/system" / name
            content = text.format(current=self.current)
            if not path.is_file() or path.read_text(encoding="utf-8") != content:
                path.write_text(content, encoding="utf-8")
                stale = True
        if stale:
            self.systemctl("daemon-reload")
        self.systemctl("enable", "hpcai-node.service")

    def open(self, was_open: bool | None = None) -> None:
        """Let slurmd start, and start it where it was stopped for this or has found the gate closed."""
        was_open = self.gate.exists() if was_open is None else was_open
        if not self.gate.exists():
            self.gate.write_text("ready\n", encoding="utf-8")
        self.release(was_open)

    def release(self, was_open: bool) -> None:
        """Start slurmd where it was stopped for this, or where it runs from boot on and its start was passed over.

        One that somebody stopped while the gate was open stays stopped.
        """
        held = self.held.exists()
        if held or (not was_open and self.systemctl("is-enabled", "--quiet", "slurmd").rc == 0):
            self.systemctl("start", "--no-block", "slurmd")
        if held:
            self.held.unlink()

    def close(self) -> None:
        """Let no slurmd start; one that has jobs keeps them."""
        with contextlib.suppress(FileNotFoundError):
            self.gate.unlink()
        if self.command(["pgrep", "-f", r"^slurmstepd: \["], _MOMENT).rc != 0:
            if self.systemctl("is-active", "--quiet", "slurmd").rc == 0:
                self.held.touch()
            self.systemctl("stop", "slurmd")

    def report(self, line: str, level: str) -> None:
        """Write a line into CycleCloud's log, on a node that it made."""
        jetpack = str(self.root / _JETPACK.lstrip("/"))
        program = jetpack if os.access(jetpack, os.X_OK) else shutil.which("jetpack")
        if program:
            priority = "high" if level == "error" else "low"
            self.command([program, "log", f"hpcai-node: {line}", f"--level={level}", f"--priority={priority}"], _MOMENT)


# The result of a node that configured itself, and where it is kept. Runs on the node.


SCHEMA = 1
OK, FAILED, LATE = "ok", "failed", "late"
CODES = {OK: 0, FAILED: 1, LATE: 3}
_SHOWN = 2000


class ApplyResult(t.NamedTuple):
    """One attempt; ``machine`` tells a node from another that was made from its disk."""

    digest: str
    machine: str
    started: str
    seconds: float
    status: str
    failed_task: str = ""
    message: str = ""
    changed: int = 0

    def document(self) -> dict[str, t.Any]:
        fields = {**self._asdict(), "seconds": round(self.seconds, 1), "message": self.message[:_SHOWN]}
        return {"schema": SCHEMA, **fields}

    def line(self) -> str:
        """Return the result in one line, fit for CycleCloud's log."""
        what = f"{self.status} after {self.seconds:.0f} s, {self.changed} changes, bundle {self.digest[:12]}"
        why = ": ".join(part for part in (self.failed_task, self.message) if part)
        return " ".join(f"{what}; {why}".split())[:_SHOWN] if why else what


def load(path: Path) -> dict[str, t.Any]:
    """Return a document; an empty one where it is missing, or half written by a node that lost its power."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def applied(known: t.Mapping[str, t.Any], digest: str, machine: str) -> bool:
    """Return whether this machine has applied this bundle without failure."""
    return (known.get("status"), known.get("digest"), known.get("machine")) == (OK, digest, machine)


def judge(late: bool, rc: int | None, last_line: str, progress: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return how a run ended, from its exit status, its last line and what the callback kept of it."""
    changed = int(progress.get("changed") or 0)
    if late:
        return {
            "status": LATE,
            "failed_task": str(progress.get("task") or ""),
            "message": "the budget is over",
            "changed": changed,
        }
    if rc == 0 and not progress.get("hosts"):
        return {"status": FAILED, "message": "node.yml did nothing: no host of the inventory is in slurm_compute"}
    if rc == 0:
        return {"status": OK, "changed": changed}
    task = str(progress.get("failed_task") or "")
    # Without a failed task only the last line of ansible-playbook itself says why.
    message = str(progress.get("message") or "") or last_line or f"ansible-playbook ended with {rc}"
    return {"status": FAILED, "failed_task": task, "message": message, "changed": changed}


# The machine type, from the cloud: one bundle serves node arrays of several sizes. Private, runs on the node.


# Every VM of Azure has it: cloud-init, sources/azure/identity.py.
AZURE = "7783-7084-3265-9085-8269-3286-77"
URL = "http://169.254.169.254/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text"
_ATTEMPTS, _SECONDS = 3, 2.0
_SIZE = re.compile(r"[A-Za-z0-9_]{1,64}")


def size(root: Path, fetch: t.Callable[[], str] | None = None) -> str:
    """Return the VM size as profiles name it, such as ``ND96asr_v4``; nothing elsewhere, or if Azure is silent."""
    try:
        tag = (root / "sys/class/dmi/id/chassis_asset_tag").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""
    if tag != AZURE:
        return ""
    for dummy in range(_ATTEMPTS):
        try:
            answer = (fetch or _fetch)().strip()
        except (OSError, urllib.error.URLError, http.client.HTTPException):
            continue
        return answer[len("Standard_") :] if _SIZE.fullmatch(answer) and answer.startswith("Standard_") else ""
    return ""


def _fetch() -> str:
    """Return the answer of the instance metadata service, which no proxy leads to."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(URL, headers={"Metadata": "true"})
    with opener.open(request, timeout=_SECONDS) as answer:
        return str(answer.read(256).decode("ascii", "replace"))


# Apply a bundle to this node: what bootstrap.sh starts. Runs on the node.


BUDGET = 900
SCOPE = "hpcai-node-run.scope"
_ANSIBLE = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
from ansible.cli.playbook import main
main(sys.argv)
"""
_ENVIRONMENT = {
    "ANSIBLE_CALLBACKS_ENABLED": "hpcai.gpu_cluster.node_result",
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
    "ANSIBLE_GATHERING": "explicit",
    "ANSIBLE_LOCALHOST_WARNING": "false",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_RETRY_FILES_ENABLED": "false",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


def options(argv: t.Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bootstrap.sh", description="Configure this node.")
    parser.add_argument("bundle", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("bundle_digest", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, help="seconds after which to give up; by default what the bundle says")
    parser.add_argument("--digest", help="what the digest of the bundle has to be")
    parser.add_argument("--force", action="store_true", help="apply it again")
    parser.add_argument("--boot", action="store_true", help="open the gate if it was applied, else have it applied")
    return parser.parse_args(argv)


def main(argv: t.Sequence[str], host: NodeHost | None = None) -> int:
    begin = time.monotonic()
    request, host = options(argv), host or NodeHost()
    host.run.mkdir(mode=0o755, parents=True, exist_ok=True)
    host.state.mkdir(mode=0o755, parents=True, exist_ok=True)
    if request.boot:
        # Without the lock: slurmd waits for us, and the process that has the lock may be starting slurmd.
        return boot(request, host)
    with lock(host.run / "node.lock"):
        return 0 if not request.force and known(request, host) else apply(request, host, begin)


def known(request: argparse.Namespace, host: NodeHost) -> bool:
    """Open the gate where this machine has applied the bundle; return whether it has."""
    if not applied(load(host.result), request.bundle_digest, host.machine()):
        return False
    host.open()
    say(f"bundle {request.bundle_digest[:12]} is applied; the node is open for slurmd")
    return True


def boot(request: argparse.Namespace, host: NodeHost) -> int:
    """Open the gate where the bundle is applied, else start applying it."""
    return 0 if known(request, host) else host.systemctl("start", "--no-block", "hpcai-node-apply.service").rc or 0


def apply(request: argparse.Namespace, host: NodeHost, begin: float) -> int:
    """Run the playbook, write the result, and open or close the gate by it."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    was_open = host.gate.exists()
    try:
        verdict = attempt(request, host, begin)
    except (OSError, ValueError, KeyError) as exc:  # a full disk, for one
        verdict = {"status": FAILED, "message": f"the bundle could not be applied: {type(exc).__name__}: {exc}"}
    seconds = time.monotonic() - begin
    result = ApplyResult(
        digest=request.bundle_digest, machine=host.machine(), started=started, seconds=seconds, **verdict
    )
    if result.status == OK:
        host.open(was_open)
    else:
        host.systemctl("kill", "--signal=KILL", SCOPE)
        host.close()
    say(result.line())
    host.report(result.line(), "info" if result.status == OK else "error")
    keep(host.result, result)
    return CODES[result.status]


def attempt(request: argparse.Namespace, host: NodeHost, begin: float) -> dict[str, t.Any]:
    """Put the bundle where it stays, run its playbook, and return how that ended."""
    manifest = load(request.bundle / "manifest.json")
    budget = request.budget or int(manifest.get("budget") or BUDGET)
    home = host.settle(request.bundle, request.bundle_digest)
    host.units()
    inventory(home, host)
    if host.progress.exists():
        host.progress.unlink()
    outcome = play(home, host, budget - (time.monotonic() - begin))
    late = outcome.rc is None and time.monotonic() - begin >= budget
    return judge(late, outcome.rc, last_line_of(outcome), load(host.progress))


def inventory(home: Path, host: NodeHost) -> None:
    """Write an inventory with this node's name; its groups are in the bundle."""
    text = (home / "inventory.yml").read_text(encoding="utf-8")
    groups = json.loads(text)["all"]["children"]
    local = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    machine = size(host.root)
    if machine:  # over the value of the bundle: one bundle serves node arrays of several sizes
        local["cluster_sku"] = machine
    hosts = {group: {"hosts": {host.name(): local}} for group in groups}
    folder = host.run / "node-inventory"
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    (folder / "hosts.yml").write_text(json.dumps({"all": {"children": hosts}}), encoding="utf-8")
    (folder / "ansible.cfg").touch()  # none of the node's own
    (folder / "group_vars/all.yml").write_bytes((home / "vars.yml").read_bytes())


def play(home: Path, host: NodeHost, seconds: float) -> _process.Outcome:
    """Run node.yml in a control group of its own, so that nothing of it outlives its time."""
    playbook = home / "collections/ansible_collections/hpcai/gpu_cluster/playbooks/node.yml"
    argv = [
        *("systemd-run", "--scope", "--quiet", "--collect", f"--unit={SCOPE}"),
        *(sys.executable, "-I", "-S", "-X", f"pycache_prefix={host.state}/pycache", "-c", _ANSIBLE, str(home / "site")),
        *("-i", str(host.run / "node-inventory/hosts.yml"), str(playbook)),
    ]
    environment = {
        **_ENVIRONMENT,
        "ANSIBLE_CONFIG": str(host.run / "node-inventory/ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(home / "collections"),
        "ANSIBLE_HOME": str(host.state / "ansible"),
        "HPCAI_NODE_PROGRESS": str(host.progress),
    }
    if host.log.exists():
        host.log.replace(host.log.with_suffix(".log.1"))
    host.log.touch(mode=0o640)
    return _process.run_to_file(argv, max(seconds, 0.1), host.log, environment)


def last_line_of(outcome: _process.Outcome) -> str:
    """Return the last line that a run printed."""
    lines = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if line.strip()]
    return lines[-1] if lines else ""


def keep(path: Path, result: ApplyResult) -> None:
    """Write the result in one step."""
    replace(path, f"{json.dumps(result.document(), indent=2)}\n")


def say(line: str) -> None:
    sys.stdout.write(f"hpcai-node: {line}\n")
