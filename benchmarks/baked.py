# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a new node takes from its kernel's start until slurmd is ready, from a stock image and from a baked one.

The stock image is the lab's without Slurm, munge and what else image.yml installs; those packages lie on it as files,
so that no network takes part. image.yml bakes the other one of it. Each round has configure.yml make a node of both, in
turns. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import time
import typing as t
from pathlib import Path

from machines import ROOT, Bench, Machine

KINDS = ("stock", "baked")
# What nodes of the lab get by the roles; their image has it already.
GONE = "'slurm*' munge libmunge2 'libpmix*' nfs-common nfs-kernel-server cifs-utils mdadm xfsprogs fio"
WANTED = "slurmd slurm-client munge libpmix2 nfs-common cifs-utils mdadm xfsprogs fio".split()
READY = "journalctl --boot --unit=slurmd --grep='slurmd started on' --output=json --output-fields=__MONOTONIC_TIMESTAMP"
MOUNT = "/srv/packages"
LIMIT = 3600  # seconds for one playbook


class Taken(t.NamedTuple):
    """Seconds until slurmd is ready by the node's own clock, and processor seconds of the node and of all else."""

    ready: float
    node: float
    others: float

    def __str__(self) -> str:
        others = f"{self.others:.1f} s of the controller's and the control host's"
        return f"ready after {self.ready:.1f} s, {self.node:.1f} s of its processors and {others}"


def used(machine: Machine) -> float:
    """Processor seconds of a running machine since it was switched on."""
    fields = Path(f"/proc/{machine.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own() -> float:
    """Processor seconds of the programs that this one has started and that have ended: Ansible's."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Node(Bench):
    """The machine whose disk is exchanged, and the two images beside it."""

    def __init__(self, lab: Path, name: str, mirror: str) -> None:
        super().__init__(lab, name)
        self.root = self.machine.directory / "root.qcow2"
        self.own = self.machine.directory / "root.before.qcow2"
        self.images = {kind: self.machine.directory / f"{kind}.qcow2" for kind in KINDS}
        self.mirror = mirror
        self.controller = Machine(self.lab, "ctl")

    def off(self) -> None:
        if self.machine.pid:
            self.machine.wait(LIMIT)  # make lab-up leaves it while it boots
            self.sh("sync")
            self.machine.stop()

    def take(self, image: Path, form: str) -> None:
        """Start from nothing but this image."""
        self.off()
        self.root.unlink(missing_ok=True)
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", form, "-b", str(image), str(self.root)]
        subprocess.run(argv, check=True)
        self.machine.blank()
        self.boot()

    def make_stock(self) -> None:
        """Make the image of a machine that somebody has installed an operating system on, and nothing else."""
        self.take(Path(self.machine.spec.image, "root.raw"), "raw")
        self.sh(f"DEBIAN_FRONTEND=noninteractive apt-get -qq purge {GONE} && apt-get -qq autoremove --purge")
        state = self.lab / "baked"
        state.mkdir(exist_ok=True)
        (state / "status").write_text(self.sh("cat /var/lib/dpkg/status"))
        argv = [sys.executable, str(ROOT / "extensions/molecule/shared/local_repository.py"), f"--mirror={self.mirror}"]
        argv += ["--suites=bookworm", f"--status={state}/status", f"--cache={state}/cache", f"{state}/packages"]
        subprocess.run([*argv, *WANTED], check=True)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(state / "packages", arcname=".")
        unpack = self.machine.system.argv(f"mkdir -p {MOUNT} && tar -C {MOUNT} -x")
        subprocess.run(unpack, input=packed.getvalue(), check=True)
        self.sh(f"echo 'deb [trusted=yes] file:{MOUNT} ./' >/etc/apt/sources.list && apt-get -qq update")
        self.off()
        self.root.rename(self.images["stock"])

    def play(self, playbook: str, *inventories: str) -> None:
        argv = [str(ROOT / ".build/venv/bin/ansible-playbook"), *[f"--inventory={path}" for path in inventories]]
        environment = {**os.environ, "HPCAI_REPORT_DIR": str(self.lab / "report"), "ANSIBLE_NOCOLOR": "1"}
        argv.append(str(ROOT / "playbooks" / playbook))
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}:\n{(done.stdout + done.stderr)[-4000:]}")

    def configure(self) -> None:
        self.play("configure.yml", str(ROOT / "lab/inventory"), str(self.lab / "hosts.yml"))

    def make_baked(self) -> None:
        self.take(self.images["stock"], "qcow2")
        answer = subprocess.run(
            [str(ROOT / ".build/venv/bin/ansible-inventory"), "-i", str(self.lab / "hosts.yml"), "--host", self.name],
            capture_output=True,
            check=True,
        )
        host = {
            **json.loads(answer.stdout),
            "node_image_remove": ["/etc/lab/ssh_host_*"],  # the lab gives it to its machines at each boot
            "image_disk": str(self.root),
            "image_file": str(self.images["baked"]),
        }
        inventory = self.lab / "baked/hosts.json"
        inventory.write_text(json.dumps({"all": {"children": {"image": {"hosts": {"bake": host}}}}}))
        self.play("image.yml", str(ROOT / "lab/inventory"), str(inventory))

    def make(self) -> None:
        """Make the images; they are kept beside the disk, and removed with the lab."""
        for kind, make in zip(KINDS, (self.make_stock, self.make_baked)):
            began = time.monotonic()
            if not self.images[kind].exists():
                make()
                print(f"{kind} image: {time.monotonic() - began:.0f} s", flush=True)

    def ready(self) -> float:
        """Seconds from the kernel's start to the first readiness of slurmd."""
        for dummy in range(60):
            found = [json.loads(line) for line in self.sh(f"{READY} || true").splitlines()]
            if found:
                return int(found[0]["__MONOTONIC_TIMESTAMP"]) / 1e6
            time.sleep(1)
        raise SystemExit(f"{self.name}: slurmd did not start within a minute of configure.yml's end")

    def measure(self, kind: str) -> Taken:
        before = own() + used(self.controller)
        self.take(self.images[kind], "qcow2")
        there = self.sh("command -v slurmd || true").strip()
        if bool(there) != (kind == "baked"):
            raise SystemExit(f"{self.name}: the {kind} image has {there or 'no slurmd'}")
        self.configure()
        return Taken(self.ready(), used(self.machine), own() + used(self.controller) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=Path, default=ROOT / ".build/lab", help="a lab of `make lab BACKEND=vm NODES=1`")
    parser.add_argument("--machine", default="c1", help="its compute node; what is on its disks is lost")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="where the packages come from")
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which medians are taken")
    args = parser.parse_args()
    node = Node(args.lab, args.machine, args.mirror)
    node.off()
    if not node.own.exists():  # else one that was killed has left it
        node.root.rename(node.own)
    taken: dict[str, list[Taken]] = {kind: [] for kind in KINDS}
    try:
        node.make()
        print(node.describe(), flush=True)
        print(f"  not counted, as it configures the controller too: {node.measure('baked')}", flush=True)
        for number in range(args.repeat):
            for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                taken[kind].append(node.measure(kind))
                print(f"  {kind}: {taken[kind][-1]}", flush=True)
    finally:
        if node.machine.pid:
            node.machine.kill()
        node.root.unlink(missing_ok=True)
        node.own.rename(node.root)
    for name in Taken._fields:
        show(name, {kind: [getattr(one, name) for one in taken[kind]] for kind in KINDS})


def show(name: str, seconds: dict[str, list[float]]) -> None:
    """Print medians, and the ratio of each pair: what else ran on this machine meanwhile was the same for both."""
    print(name)
    for kind, each in seconds.items():
        print(f"  {kind:<8}{statistics.median(each):>8.1f} s    {min(each):.1f} to {max(each):.1f}")
    ratios = [baked / stock for stock, baked in zip(*(seconds[kind] for kind in KINDS))]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"  baked : stock {statistics.median(ratios):.2f}, {spread}")


if __name__ == "__main__":
    main()
