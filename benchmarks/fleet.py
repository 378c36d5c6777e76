# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certification of hundreds of real slurmd on one machine: beside Ansible's push, with a hung node, killed half way.

A lab of one node comes up, and in its controller's container a fleet whose GPUs are emulated (tests/fleet). Everything
is measured in this one run on this one machine; only the ratios mean something elsewhere. See README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/fleet"))

import faults  # noqa: E402
import fleet as fleets  # noqa: E402

STATE = ROOT / ".build/benchmark-fleet"
LAB = ["-e", "lab_name=benchfleet", "-e", "lab_subnet=10.213.3.0/24", "-e", "lab_compute_nodes=1"]
LIMIT = 3600  # seconds for one command
# What nodes do by certification, and by a module: ask nvidia-smi three times and judge what it says. The real one
# takes two seconds of a node with 8 GPUs, up to ten without persistence mode; here all nodes share a few cores.
CHECKS = ["gpu"]
MODULE = "hpcai.gpu_cluster.gpu_info"
STAGES = ("reach", "local")


def playbook(name: str, lab: Path, *args: str) -> None:
    argv = [
        ROOT / ".build/venv/bin/ansible-playbook",
        *LAB,
        "-e",
        f"lab_state_dir={lab}",
        *args,
        ROOT / name,
    ]
    run([str(word) for word in argv])


def run(argv: t.Sequence[str]) -> float:
    """Run a command; return its wall time in seconds."""
    begin = time.monotonic()
    environment = {**os.environ, "HPCAI_REPORT_DIR": str(STATE / "report"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return time.monotonic() - begin


def certify(fleet: fleets.Fleet, stages: t.Sequence[str], run_name: str) -> tuple[float, float]:
    """Seconds for stages through Slurm, plan and certificate included, and those of the controller's processors."""
    suite = {"checks": CHECKS, "budget": 300}
    node = {**fleet.options()["node"], "suites": {"full": suite}}
    found = fleet.certify(run=run_name, node=node, options={"stages": list(stages)})
    return found["seconds"], found["cpu"]


def push(fleet: fleets.Fleet, forks: int) -> tuple[float, float]:
    """The same by the module on every node by Ansible: one connection and one Python for each."""
    folder = STATE / "push"
    folder.mkdir(parents=True, exist_ok=True)
    shown = subprocess.run([*fleets.INSPECT, fleet.container], capture_output=True, check=True)
    address = json.loads(shown.stdout)
    ip = next(iter(address[0]["NetworkSettings"]["Networks"].values()))["IPAddress"]
    control = f"-o ControlMaster=auto -o ControlPersist=9 -o ControlPath=/tmp/g-{time.time_ns()}"
    shared = {
        "ansible_host": ip,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(fleet.lab / "ssh_key"),
        # As to hundreds of machines: a connection of its own for each, and none that an earlier play has left.
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={fleet.lab}/known_hosts "
        f"{control}-{{{{ inventory_hostname }}}}",
        "ansible_python_interpreter": f"{fleets.INSIDE}/as/{{{{ inventory_hostname }}}}",
    }
    hosts = {name: {} for name in fleet.nodes}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": shared}}))
    profile = fleet.profile
    about = {"expect": profile["expect"], "profile": profile["profile"], "name": "{{ inventory_hostname }}"}
    gpus = {"gpus": profile["gpu"]["count"], "topology": profile["topology"]["gpus"], "sysfs": "/mnt"}
    play = {"hosts": "all", "gather_facts": False, "strategy": "free", "tasks": [{MODULE: {**about, **gpus}}]}
    (folder / "play.json").write_text(json.dumps([play]))
    argv = [
        ROOT / ".build/venv/bin/ansible-playbook",
        "-i",
        folder / "hosts.json",
        "--forks",
        forks,
        folder / "play.json",
    ]
    before = used()
    seconds = run([str(word) for word in argv])
    return seconds, used() - before


def used() -> float:
    """Seconds of processor of all commands that have ended; what podman started elsewhere is not among them."""
    all_of_them = resource.getrusage(resource.RUSAGE_CHILDREN)
    return all_of_them.ru_utime + all_of_them.ru_stime


def prepare_push(fleet: fleets.Fleet) -> None:
    """Let a module that comes to the container by SSH run as on one of its nodes."""
    folder = fleet.home / "as"
    folder.mkdir(exist_ok=True)
    for name in fleet.nodes:
        words = f'nsenter --target "$(cat /run/fleet/{name})" --mount --uts env SLURMD_NODENAME={name} /usr/bin/python3'
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    fleet.sh("echo MaxStartups 1000 > /etc/ssh/sshd_config.d/fleet.conf; systemctl reload ssh")


def digests(folder: Path) -> dict[str, str]:
    """What there is of results, by test."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "results").glob("*.jsonl")}


def killed(fleet: fleets.Fleet, seed: int, kills: int, whole: float) -> tuple[int, int, int]:
    """Kill a coordinator at random moments and start it again; return kills, results and how many were lost."""
    chance, name = random.Random(seed), f"killed-{time.time_ns()}"  # noqa: S311
    command = fleet.coordinator(run=name, options={"seed": seed})
    argv = fleet.argv(["sh", "-c", command], fleets.USER)
    seen: dict[str, str] = {}
    done = lost = 0
    while True:
        child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            said = child.communicate(timeout=chance.uniform(1, 2 * whole / (kills + 1)) if done < kills else LIMIT)[1]
        except subprocess.TimeoutExpired:
            fleet.sh(f"kill -KILL $(cat {fleets.PID})", check=False)
            child.communicate()
            done += 1
        else:
            if child.returncode:
                raise SystemExit(f"the coordinator ended with {child.returncode}: {said[-2000:]}")
        now = digests(fleet.run_folder(name))
        lost += sum(1 for test, digest in seen.items() if now.get(test) != digest)
        seen = now
        if child.returncode == 0:
            break
    records = (fleet.run_folder(name) / "records.jsonl").read_text()
    lost += sum(1 for test in seen if f'"{test[: -len(".jsonl")]}"' not in records)
    return done, len(seen), lost


def show(*cells: object) -> None:
    sys.stdout.write(f"{cells[0]:<58}" + "".join(f"{cell!s:>14}" for cell in cells[1:]) + "\n")
    sys.stdout.flush()


def named(fleet: fleets.Fleet, certificate: t.Mapping[str, t.Any]) -> tuple[list[str], list[str]]:
    """Nodes at fault that the certificate clears, and sound ones that it convicts."""
    status = {name: one["status"] for name, one in certificate["nodes"].items()}
    guilty = faults.culprits(fleet.hidden)
    return [name for name in guilty if status[name] == "cleared"], [
        name for name, one in status.items() if one == "drained" and name not in guilty
    ]


def bench_push(fleet: fleets.Fleet, forks: t.Sequence[int], delays: t.Sequence[float]) -> None:
    prepare_push(fleet)
    for seconds in delays:
        fleet.delay(seconds)
        ours, cpu = certify(fleet, STAGES, f"alone-{time.time_ns()}")
        what = f"nvidia-smi takes {seconds:g} s"
        show(f"{what}: through Slurm; the controller's cpu", f"{ours:.1f} s", "1.0", f"{cpu:.1f} s", "1.0")
        for count in forks:
            theirs, more = push(fleet, count)
            cells = (f"{theirs:.1f} s", f"{theirs / ours:.1f}", f"{more:.1f} s", f"{more / cpu:.1f}")
            show(f"{what}: {MODULE.rpartition('.')[2]}, {count} forks", *cells)
    fleet.delay(0)


def bench_hung(fleet: fleets.Fleet) -> None:
    """A slurmd that is stopped: Slurm still believes in it. Its patience runs while the others work."""
    for stages in (STAGES, [*STAGES, "pair"]):
        without = certify(fleet, stages, f"hung-0-{time.time_ns()}")[0]
        victim = fleet.nodes[len(fleet.nodes) // 3]
        fleet.room("stop", victim)
        name = f"hung-1-{time.time_ns()}"
        try:
            more = certify(fleet, stages, name)[0]
        finally:
            fleet.room("continue", victim)
        left = ", ".join(one["node"] for one in fleet.certificate(name)["untested"])
        show(f"stages {', '.join(stages)}", f"{without:.1f} s", "1.00")
        show(f"with one hung slurmd ({victim}; untested: {left})", f"{more:.1f} s", f"{more / without:.2f}")
        fleet.wait(lambda: len(fleet.idle()) == len(fleet.nodes), 300, "the hung node back")


def bench_certify(fleet: fleets.Fleet, seed: int, kinds: t.Sequence[str]) -> float:
    fleet.break_down(faults.draw(seed, kinds, fleet.nodes, fleet.leaf))
    found = fleet.certify(run=f"faults-{seed}-{time.time_ns()}", options={"seed": seed}, timeout=60)
    certificate = fleet.certificate(found["run"])
    missed, accused = named(fleet, certificate)
    rounds = sum(1 for one in certificate["rounds"] if one["stage"] in ("pair", "confirm"))
    show(f"all stages, {len(kinds)} faults, seed {seed}: {rounds} rounds", f"{found['seconds']:.1f} s")
    show(f"  missed: {', '.join(missed) or 'none'}; accused: {', '.join(accused) or 'none'}")
    fleet.mend()
    return float(found["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--forks", default="5,16")
    parser.add_argument("--delays", default="0,8", help="seconds that nvidia-smi takes")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--faults", default="slow_gpu,slow_rail,wrong_results,bad_partners,flaky")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="push,hung,faults,killed")
    parser.add_argument("--lab", type=Path, help="state directory of a lab that is up; without it one comes and goes")
    args = parser.parse_args()
    parts = args.only.split(",")
    lab = args.lab or STATE / "lab"
    sys.stdout.write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if not args.lab:
        playbook("lab/up.yml", lab)
    fleet = fleets.Fleet(lab)
    try:
        fleet.stop()
        fleet.make(args.nodes)
        show(f"{args.nodes} slurmd idle", f"{fleet.start():.1f} s")
        fleet.warm()
        whole = 60.0
        if "push" in parts:
            bench_push(fleet, list(map(int, args.forks.split(","))), list(map(float, args.delays.split(","))))
        if "hung" in parts:
            bench_hung(fleet)
        if "faults" in parts:
            whole = bench_certify(fleet, args.seed, [word for word in args.faults.split(",") if word])
        if "killed" in parts:
            done, kept, lost = killed(fleet, args.seed, args.kills, whole)
            show(f"coordinator killed {done} times: {kept} results, lost", lost)
    finally:
        fleet.stop()
        if not args.lab:
            playbook("lab/down.yml", lab)
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
