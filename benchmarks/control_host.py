# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a second run of configure.yml costs the control host, for a cluster of any size.

Real nodes have processors of their own, and those of a lab have not. So a second run on a lab of three hosts is kept,
answer by answer, and then given again: further compute nodes answer as the last one did, each after the time that it
took. Only the ratios mean something elsewhere. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import typing as t

import tidy
import yaml
from callback.answers import Answers
from configure import INVENTORY, ROOT, STATE, fresh_lab, machine, playbook, settled, show

ANSWERS = STATE.with_name("benchmark.answers")
SETTINGS = {
    "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "benchmarks/callback"),
    "ANSIBLE_CALLBACKS_ENABLED": "hpcai.gpu_cluster.run_record,answers",
    "ANSWERS": str(ANSWERS),
}
LAST = "c2"  # whose answers further compute nodes give


class Cost(t.NamedTuple):
    """Of one run: wall time and the control host's processor time in seconds, and the largest process in MB."""

    seconds: float
    processor: float
    memory: float


def keep() -> str:
    """Bring a lab of three up, keep what it answers to a second run, and remove it; return its inventory."""
    addresses = fresh_lab(3)
    playbook("playbooks/configure.yml", *INVENTORY)
    settled(*INVENTORY)
    write({address: (name, name) for name, address in addresses.items()})
    settled(*INVENTORY, **SETTINGS)
    known = (STATE / "hosts.yml").read_text(encoding="utf-8")
    playbook("lab/down.yml")  # nobody is asked any more
    return known


def write(hosts: dict[str, tuple[str, str]]) -> None:
    ANSWERS.mkdir(mode=0o700, exist_ok=True)
    (ANSWERS / "hosts.json").write_text(json.dumps(hosts), encoding="utf-8")


def inventory(known: str, size: int) -> list[str]:
    """Write one of the lab's hosts and of further ones, which are not there; return its options."""
    tree = yaml.safe_load(known)
    groups = tree["all"]["children"]
    nodes, compute = groups["lab_nodes"]["hosts"], groups["slurm_compute"]["hosts"]
    hosts = {one["ansible_host"]: (name, name) for name, one in nodes.items()}
    for number in range(len(nodes), size):
        name, address = f"c{number}", f"10.214.{number // 250}.{number % 250 + 1}"
        # Of what a node is told of itself only its name differs, and the one that answers has another.
        nodes[name] = {**nodes[LAST], "ansible_host": address, "node_health_check_node_name": LAST}
        compute[name] = {}
        hosts[address] = (name, LAST)
    write(hosts)
    path = ANSWERS / "hosts.yml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return [*INVENTORY[:2], "-i", str(path)]


def cost(options: list[str]) -> Cost:
    """Run configure.yml once on a cluster that answers so."""
    for path in ANSWERS.glob("*.count"):
        path.unlink()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = settled(*options, **SETTINGS, ANSWERS_GIVEN="1")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    unasked = Answers(ANSWERS).unasked()
    if unasked:
        raise SystemExit(f"A run asked less than the one that was kept: {', '.join(unasked[:9])}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, processor, after.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="3,30,100,300", help="sizes, the controller included, from the smallest")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is taken")
    args = parser.parse_args()
    sizes = [int(size) for size in args.hosts.split(",")]
    if sizes[0] < 3 or sizes != sorted(sizes):
        parser.error("--hosts begins with 3 or more, the hosts that answers are kept of, and goes up")
    print(machine())
    with tidy.orderly(STATE, clean):
        known = keep()
        show(("hosts", "second run", "ratio", "per host", "processor", "per host", "memory"))
        first: Cost | None = None
        for size in sizes:
            options = inventory(known, size)
            runs = [cost(options) for dummy in range(args.repeat)]
            now = Cost(*(statistics.median(values) for values in zip(*runs)))
            first = first or now
            more = max(size - sizes[0], 1)
            growth = [f"{(now[index] - first[index]) / more:.2f} s" for index in (0, 1)]
            wall = (f"{now.seconds:.1f} s", f"{now.seconds / first.seconds:.2f}", growth[0])
            show((str(size), *wall, f"{now.processor:.1f} s", growth[1], f"{now.memory:.0f} MB"))
    print(machine())


def clean() -> None:
    playbook("lab/down.yml")
    shutil.rmtree(ANSWERS, ignore_errors=True)


if __name__ == "__main__":
    main()
