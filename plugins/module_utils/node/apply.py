# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply a bundle to this node: what bootstrap.sh starts. No AnsibleModule, private, runs on the node."""

from __future__ import annotations

import argparse
import json
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._replace import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import result, size
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.host import Host

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
    parser.add_argument("found", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, help="seconds after which to give up; by default what the bundle says")
    parser.add_argument("--digest", help="what the digest of the bundle has to be")
    parser.add_argument("--force", action="store_true", help="apply it again")
    parser.add_argument("--boot", action="store_true", help="open the gate if it was applied, else have it applied")
    return parser.parse_args(argv)


def main(argv: t.Sequence[str], host: Host | None = None) -> int:
    begin = time.monotonic()
    asked, host = options(argv), host or Host()
    host.run.mkdir(mode=0o755, parents=True, exist_ok=True)
    host.state.mkdir(mode=0o755, parents=True, exist_ok=True)
    if asked.boot:
        # Without the lock: slurmd waits for us, and whoever has the lock may be starting slurmd.
        return boot(asked, host)
    with lock(host.run / "node.lock"):
        return 0 if not asked.force and known(asked, host) else apply(asked, host, begin)


def known(asked: argparse.Namespace, host: Host) -> bool:
    """Open the gate where this machine has the bundle already."""
    if not result.applied(result.load(host.result), asked.found, host.machine()):
        return False
    host.open()
    say(f"bundle {asked.found[:12]} is applied; the node is open for slurmd")
    return True


def boot(asked: argparse.Namespace, host: Host) -> int:
    """Do what there is to do at every boot."""
    return 0 if known(asked, host) else host.systemctl("start", "--no-block", "hpcai-node-apply.service").rc or 0


def apply(asked: argparse.Namespace, host: Host, begin: float) -> int:
    """Run the playbook, write down how it ended, and open or close the gate accordingly."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        verdict = attempt(asked, host, begin)
    except (OSError, ValueError, KeyError) as exc:  # a full disk, for one
        verdict = {"status": result.FAILED, "message": f"the bundle could not be applied: {type(exc).__name__}: {exc}"}
    seconds = time.monotonic() - begin
    found = result.Result(digest=asked.found, machine=host.machine(), started=started, seconds=seconds, **verdict)
    if found.status == result.OK:
        host.open()
    else:
        host.systemctl("kill", "--signal=KILL", SCOPE)
        host.close()
    say(found.line())
    host.tell(found.line(), "info" if found.status == result.OK else "error")
    keep(host.result, found)
    return result.CODES[found.status]


def attempt(asked: argparse.Namespace, host: Host, begin: float) -> dict[str, t.Any]:
    """Put the bundle where it stays, run its playbook, and say how that ended."""
    manifest = result.load(asked.bundle / "manifest.json")
    budget = asked.budget or int(manifest.get("budget") or BUDGET)
    home = host.settle(asked.bundle, asked.found)
    host.units()
    inventory(home, host)
    if host.progress.exists():
        host.progress.unlink()
    outcome = play(home, host, budget - (time.monotonic() - begin))
    late = outcome.rc is None and time.monotonic() - begin >= budget
    return result.judge(late, outcome.rc, last(outcome), result.load(host.progress))


def inventory(home: Path, host: Host) -> None:
    """Give the node its name; what it belongs to is in the bundle."""
    text = (home / "inventory.yml").read_text(encoding="utf-8")
    groups = json.loads(text)["all"]["children"]
    local = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    machine = size.size(host.root)
    if machine:  # over what the bundle says: one bundle serves node arrays of several sizes
        local["cluster_sku"] = machine
    hosts = {group: {"hosts": {host.name(): local}} for group in groups}
    folder = host.run / "node-inventory"
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    (folder / "hosts.yml").write_text(json.dumps({"all": {"children": hosts}}), encoding="utf-8")
    (folder / "ansible.cfg").touch()  # none of the node's own
    (folder / "group_vars/all.yml").write_bytes((home / "vars.yml").read_bytes())


def play(home: Path, host: Host, seconds: float) -> _command.Outcome:
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
    return _command.run_to_file(argv, max(seconds, 0.1), host.log, environment)


def last(outcome: _command.Outcome) -> str:
    """Return the last words of a run."""
    lines = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if line.strip()]
    return lines[-1] if lines else ""


def keep(path: Path, found: result.Result) -> None:
    """Write the result in one step."""
    replace(path, f"{json.dumps(found.document(), indent=2)}\n")


def say(line: str) -> None:
    sys.stdout.write(f"hpcai-node: {line}\n")
