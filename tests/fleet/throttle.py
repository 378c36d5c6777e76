# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real fault in a lab of real nodes: one's network is throttled, and certification has to name it.

    throttle.py LAB [--node NAME] [--rate RATE]

LAB is the state directory of a lab of containers with at least three compute nodes, configured and idle. Nothing but
the collectives that the nodes measure together tells of it. Ends with 1 unless the certificate convicts that node and
no other one, and nobody when the throttle is gone; who was convicted before may be watched for some more runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
Json = t.Dict[str, t.Any]
# Floors that find what is broken judge pairs, so the throttle has to break them: see lab/inventory/profiles/lab.yml.
RATE = "80mbit"
# Bytes that may go at once: a short burst, or small messages would hide the throttle.
TBF = ("burst", "256kb", "latency", "50ms")


class Lab:
    """A lab of containers that is up and configured."""

    def __init__(self, state: Path) -> None:
        self.state = state.resolve()
        self.name = (self.state / "ssh_key.pub").read_text().split()[-1].replace("hpcai-lab-", "hpcai-", 1)
        inventory = yaml.safe_load((self.state / "hosts.yml").read_text())
        self.compute = sorted(inventory["all"]["children"]["slurm_compute"]["hosts"])

    def qdisc(self, node: str, *words: str) -> None:
        """Change what a node's network interface does with what it sends; tbf needs no module that hosts lack."""
        argv = ["podman", "exec", f"{self.name}-{node}", "tc", "qdisc", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}")

    def certify(self, run: str, *options: str) -> Json:
        """Certify the lab as a person would, and return the certificate."""
        argv = [
            "ansible-playbook",
            f"--inventory={ROOT}/lab/inventory",
            f"--inventory={self.state}/hosts.yml",
            f"--extra-vars=certification_run={run}",
            *options,
            str(ROOT / "playbooks/certify.yml"),
        ]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "HPCAI_REPORT_DIR": str(self.state / "report"),
        }
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        path = self.state / "shared/certification" / run / "certificate.json"
        if not path.exists():
            raise SystemExit(f"certify.yml left no certificate:\n{(done.stdout + done.stderr)[-4000:]}")
        return dict(json.loads(path.read_text()))


def convicted(certificate: Json) -> dict[str, str]:
    """Return the nodes that a certificate says are at fault, and why."""
    return {name: one["reason"] for name, one in certificate["nodes"].items() if one["status"] == "drained"}


def trial(lab: Lab, node: str, rate: str, *options: str) -> tuple[Json, Json]:
    """Certify with the throttle and without it."""
    name = f"throttled-{node}-{time.strftime('%H%M%S', time.gmtime())}"
    lab.qdisc(node, "add", "dev", "eth0", "root", "tbf", "rate", rate, *TBF)
    try:
        slow = lab.certify(name, *options)
    finally:
        lab.qdisc(node, "del", "dev", "eth0", "root")
    return slow, lab.certify(f"{name}-mended", *options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--node", help="the one to throttle; any without it")
    parser.add_argument("--rate", default=RATE, help="as tc writes it")
    parser.add_argument("options", nargs="*", help="further options of ansible-playbook, behind --")
    args = parser.parse_args()
    lab = Lab(args.lab)
    if len(lab.compute) < 3:
        raise SystemExit("of two nodes that are slow together none can be named: the lab needs three compute nodes")
    node = args.node or random.choice(lab.compute)
    slow, mended = trial(lab, node, args.rate, *args.options)
    for label, certificate in (("throttled", slow), ("mended", mended)):
        sys.stdout.write(f"{node} {label}: {json.dumps(convicted(certificate)) or 'none'}\n")
        sys.stdout.writelines(f"  {finding['kind']}: {finding['text']}\n" for finding in certificate["findings"])
    sound = {one["status"] for name, one in mended["nodes"].items() if name != node} == {"cleared"}
    sound = sound and mended["nodes"][node]["status"] in ("cleared", "watched")
    return 0 if set(convicted(slow)) == {node} and sound else 1


if __name__ == "__main__":
    sys.exit(main())
