# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains of many nodes by the reconciler beside a loop of scontrol, on a real slurmctld; see README.md.

A slurmctld of its own runs in the controller of a lab that is up, with nodes that do not exist. All of them report one
of three faults; people have drained some before. Both ways start from the same state, in turns.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _zipapp  # noqa: E402

HOME = "/var/lib/bench-drains"  # in the container; the share is one of its directories
HUMAN = "ops: cable swap"
EVERY = 50  # one node of so many was drained by a person
CONF = """\
ClusterName=drains
SlurmctldHost={host}
SlurmctldPort=7917
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation={home}/state
SlurmctldPidFile={home}/slurmctld.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdSpoolDir={home}/spool
SlurmdTimeout=0
ProctrackType=proctrack/pgid
MpiDefault=none
NodeName=n[1-{count}] NodeAddr=127.0.0.1 Port=[20001-{last}] CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""
LETTERS = """\
import json, pathlib, sys, time
now, count = time.time(), int(sys.argv[2])
causes = [("xid", "code 79", {"code": 79, "action": "isolate", "latched": True}, "hardware"),
          ("infiniband", "port 3 is down", {}, "fabric"), ("munge", "key differs", {}, "config")]
for number in range(1, count + 1):
    check, reason, context, blame = causes[number % 3]
    record = {"schema": 1, "check": check, "verdict": "fail", "class": blame, "reason": reason, "time": now,
              "node": f"n{number}", "context": context, "metrics": [], "scope": {}}
    letter = {"schema": 1, "node": f"n{number}", "boot_id": "b", "physical_host": f"H{number}", "time": now,
              "suites": {}, "records": [record], "counts": {"fail": 1}}
    pathlib.Path(sys.argv[1], f"n{number}.json").write_text(json.dumps(letter))
"""


class Bench:
    """One slurmctld in one container."""

    def __init__(self, container: str, count: int) -> None:
        self.container, self.count = container, count

    def sh(self, script: str, data: bytes | None = None) -> str:
        words = ["podman", "exec", "-i", "--env", f"SLURM_CONF={HOME}/slurm.conf", self.container, "sh", "-ec", script]
        done = subprocess.run(words, input=data, capture_output=True, check=False, timeout=900)
        if done.returncode:
            raise SystemExit(f"{script}: {(done.stderr or done.stdout).decode()[-2000:]}")
        return done.stdout.decode()

    def put(self, name: str, content: str | bytes) -> None:
        self.sh(f"cat > {HOME}/{name}", content.encode() if isinstance(content, str) else content)

    def prepare(self) -> None:
        self.sh(f"rm -rf {HOME} && mkdir -p {HOME}/state {HOME}/mailbox {HOME}/reconcile")
        host = self.sh("hostname").strip()
        self.put("slurm.conf", CONF.format(host=host, home=HOME, count=self.count, last=20000 + self.count))
        self.put("agent.pyz", _zipapp.build())
        self.put("letters.py", LETTERS)
        config = {"schema": 1, "mailbox": f"{HOME}/mailbox", "state_dir": f"{HOME}/reconcile"}
        self.put("reconcile.json", json.dumps({**config, "max_share": 1.0, "max_leaf": self.count}))
        self.sh(f"chown -R slurm:slurm {HOME}")

    def start(self) -> None:
        """Start from nothing, with what people have drained."""
        self.stop()
        self.sh(f"rm -rf {HOME}/state/* {HOME}/reconcile/* {HOME}/mailbox/*; rm -f {HOME}/slurmctld.log")
        self.sh(
            f"systemd-run --quiet --collect --unit=bench-drains --setenv=SLURM_CONF={HOME}/slurm.conf"
            f" runuser -u slurm -- slurmctld -D -c -f {HOME}/slurm.conf"
        )
        self.sh("for i in $(seq 100); do scontrol ping | grep -q 'is UP' && exit; sleep 0.2; done; exit 1")
        names = ",".join(f"n{number}" for number in range(EVERY, self.count + 1, EVERY))
        self.sh(f"scontrol update nodename={names} state=drain reason='{HUMAN}'; sdiag -r")
        self.sh(f"runuser -u slurm -- python3 {HOME}/letters.py {HOME}/mailbox {self.count}")

    def stop(self) -> None:
        self.sh("systemctl stop bench-drains 2>/dev/null || true")

    def orders(self) -> int:
        """How often slurmctld was told to update nodes, by its own count."""
        found = re.search(r"REQUEST_UPDATE_NODE\s*\(\s*\d+\)\s*count:(\d+)", self.sh("sdiag"))
        return int(found[1]) if found else 0

    def reasons(self) -> dict[str, int]:
        found = re.findall(r" Reason=(.*?) \[", self.sh("scontrol show node -o"))
        return {reason: found.count(reason) for reason in sorted(set(found))}

    def timed(self, script: str) -> float:
        begin = time.monotonic()
        self.sh(script)
        return time.monotonic() - begin


def ours(bench: Bench) -> dict[str, float]:
    bench.start()
    agent = f"runuser -u slurm -- python3 -IS {HOME}/agent.pyz reconcile --config {HOME}/reconcile.json"
    first, told = bench.timed(agent), bench.orders()
    again = bench.timed(agent)
    return {"seconds": first, "orders": told, "second pass": again, **kept(bench, told)}


def loop(bench: Bench) -> dict[str, float]:
    """What a script does that asks for each node; the reasons are those of the reconciler."""
    bench.start()
    script = f"for i in $(seq {bench.count}); do scontrol update nodename=n$i state=drain reason=broken; done"
    return {"seconds": bench.timed(script), "orders": bench.orders(), **kept(bench, 0)}


def kept(bench: Bench, told: float) -> dict[str, float]:
    """Nothing may be drained again by a second pass, and no person's reason may be lost."""
    reasons = bench.reasons()
    wanted = bench.count // EVERY
    if told and (bench.orders() != told or sum(reasons.values()) != bench.count):
        raise SystemExit(f"a second pass gave orders, or nodes are left: {bench.orders()}, {reasons}")
    return {"people's reasons lost": wanted - reasons.get(HUMAN, 0)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--container", default="hpcai-lab-ctl", help="the controller of a lab that is configured")
    parser.add_argument("--nodes", default="100,1000", help="sizes of the cluster (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    results: dict[int, dict[str, dict[str, float]]] = {}
    for count in map(int, asked.nodes.split(",")):
        bench = Bench(asked.container, count)
        bench.prepare()
        runs = [(way.__name__, way(bench)) for dummy in range(asked.repeat) for way in (ours, loop)]
        bench.stop()
        results[count] = {
            name: {key: statistics.median(run[key] for way, run in runs if way == name) for key in runs[at][1]}
            for at, name in enumerate(("ours", "loop"))
        }
        bench.sh(f"rm -rf {HOME}")
        for name, found in results[count].items():
            sys.stdout.write(f"{count:6} nodes  {name}  " + ", ".join(f"{k} {v:.3g}" for k, v in found.items()) + "\n")
        ratio = results[count]["loop"]["seconds"] / results[count]["ours"]["seconds"]
        sys.stdout.write(f"{count:6} nodes  the loop takes {ratio:.1f} times as long\n")
    sys.stdout.write(json.dumps(results) + "\n")
    most = max(found["ours"]["orders"] for found in results.values())
    return 0 if most <= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
