# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of real slurmd in one container of a lab: made, broken and asked from this machine.

    fleet.py up LAB NODES [--gpus N] [--seed N --faults KIND,KIND]
    fleet.py down LAB

LAB is the state directory of a lab that is up. The fleet is a cluster beside the lab's own: other ports, other files,
same munge key. Its commands need SLURM_CONF=/shared/fleet/etc/slurm.conf.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".build/collections"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import faults  # noqa: E402

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles, _zipapp  # noqa: E402

Json = t.Dict[str, t.Any]
HOME = Path(__file__).resolve().parent
SETUP = ROOT / "lab/roles/lab_nodes/files/gpu_tools/emulation/setup.py"
INSIDE = "/shared/fleet"
CONF = f"{INSIDE}/etc/slurm.conf"
PID = f"{INSIDE}/kept/coordinator.pid"
SKU = "ND96asr_v4"
USER = "trainer"
# What nodes test of themselves: the rest of the agent's suite is about a machine, which they share.
SUITE = {"checks": ["infiniband_ports", "gpu", "gpu_bandwidth"], "budget": 300}
INSPECT = ["podman", "inspect"]
MOST = 256  # beyond that the steps of one machine collapse
PORT = 17000
# Seconds after which something that is waited for will not come any more; no verdict.
LIMIT = 300 * float(os.environ.get("HPCAI_TEST_PATIENCE") or 1)
SLURM_CONF = """\
ClusterName=fleet
SlurmctldHost={host}
SlurmctldPort=7817
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/fleet/slurmctld
SlurmdSpoolDir=/var/lib/fleet/spool/%n
SlurmctldPidFile=/run/fleet/slurmctld.pid
SlurmdPidFile=/run/fleet/%n.pid
SlurmctldLogFile=/var/lib/fleet/log/slurmctld.log
SlurmdLogFile=/var/lib/fleet/log/%n.log
ProctrackType=proctrack/pgid
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
GresTypes=gpu
MpiDefault=none
ReturnToService=2
MaxArraySize=10001
MessageTimeout={timeout}
SlurmdTimeout=300
NodeName={names} NodeAddr=127.0.0.1 Port=[{first}-{last}] Sockets=1 CoresPerSocket={cpus} Gres=gpu:{gpus}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""


class Fleet:
    """One fleet; ``lab`` is the state directory of the lab that holds it, ``host`` the node that it runs in."""

    def __init__(self, lab: Path, host: str = "ctl") -> None:
        self.lab, self.host = Path(lab).resolve(), host
        self.name = (self.lab / "ssh_key.pub").read_text().split()[-1]  # hpcai-lab-<name>
        self.container = f"hpcai-{self.name[len('hpcai-lab-') :]}-{host}"
        self.home = self.lab / "shared/fleet"

    @property
    def nodes(self) -> list[str]:
        return list(self._settings()["nodes"])

    @property
    def hidden(self) -> list[Json]:
        return list(json.loads((self.home / "hidden.json").read_text()))

    @property
    def leaf(self) -> int:
        return int(self._settings()["leaf"])

    def _settings(self) -> Json:
        return dict(json.loads((self.home / "fleet.json").read_text()))

    @property
    def profile(self) -> Json:
        return dict(json.loads((self.home / "profile.json").read_text()))

    def make(self, count: int, gpus: int = 2, leaf: int = 16, timeout: int = 10) -> None:
        """Write all that a fleet is made of; nothing starts."""
        if not 2 <= count <= MOST:
            raise SystemExit(f"a fleet has 2 to {MOST} nodes, not {count}")
        names = [f"n{number:03d}" for number in range(1, count + 1)]
        shutil.rmtree(self.home, ignore_errors=True)
        (self.home / "etc").mkdir(parents=True)
        (self.home / "bin").mkdir()
        (self.home / "kept").mkdir()
        (self.home / "kept").chmod(0o1777)
        for file in ("certify.py", "emulate", "faults.py", "room.py", "shifted", "shifted.py", "tool.py"):
            shutil.copy(HOME / file, self.home / file)
        self._write("fleet.json", {"nodes": names, "gpus": gpus, "leaf": leaf})
        profile = small(_profiles.load(SKU), gpus)
        self._write("profile.json", profile)
        self._machine(profile, names)
        every = f"n[001-{count:03d}]"
        words = {"names": every, "first": PORT + 1, "last": PORT + count, "cpus": 4 * gpus, "gpus": gpus}
        (self.home / "etc/slurm.conf").write_text(SLURM_CONF.format(host=self.host, timeout=timeout, **words))
        (self.home / "etc/gres.conf").write_text(f"Name=gpu File=/dev/nvidia[0-{gpus - 1}]\n")
        switches = faults.leaves(names, leaf)
        lines = [f"SwitchName={name} Nodes={','.join(members)}\n" for name, members in switches.items()]
        spine = f"SwitchName=spine Switches={','.join(switches)}\n"
        (self.home / "etc/topology.conf").write_text("".join([*lines, spine]))
        self.break_down([])

    def _machine(self, profile: Json, names: t.Sequence[str]) -> None:
        """The emulated tools of a machine type, and links that make every one of them a fleet's."""
        argv = [sys.executable, "-B", str(SETUP), "install", str(self.home / "machine"), *names]
        subprocess.run(argv, input=json.dumps(profile), text=True, check=True, capture_output=True)
        machine = self.home / "machine/machine.json"
        description = json.loads(machine.read_text())
        description["seconds"] = 0.02  # of a measurement that only waits
        machine.write_text(json.dumps(description))
        for tool in sorted(path.name for path in (self.home / "machine/bin").iterdir()):
            (self.home / "bin" / tool).symlink_to(f"{INSIDE}/emulate")

    def _write(self, name: str, what: t.Any) -> None:
        (self.home / name).write_text(json.dumps(what, indent=1))

    def mend(self) -> None:
        """Make the fleet sound: daemons that a fault has stopped go on, those that it has ended start."""
        self.room("continue", *self.with_fault(faults.HUNG))
        self.room("boot", *self.with_fault(faults.DEAD))
        self.break_down([])

    def break_down(self, hidden: t.Sequence[Json]) -> None:
        """Hide a list of faults in the fleet; an empty one makes it sound again. Nodes that are dead have to boot."""
        new = self.home / ".hidden.json"
        new.write_text(json.dumps(list(hidden)))
        new.replace(self.home / "hidden.json")

    def delay(self, seconds: float) -> None:
        """Let `nvidia-smi -q -x` take so long on every node, as the real one does, and none of the processors."""
        (self.home / "seconds").write_text(f"{seconds:g}" if seconds else "")

    def start(self, limit: float = LIMIT) -> float:
        """Start the daemons; return the seconds until every node is idle."""
        begin = time.monotonic()
        self.sh(f"python3 -m compileall -q {INSIDE}/machine/gpu_tools {INSIDE}/*.py")
        unit = "--unit=fleet --collect --property=TasksMax=infinity --property=LimitNOFILE=65536 --quiet"
        # Under cgroup v1 nobody tells systemd that a unit's last process has ended: it waits as long as it may.
        unit += " --property=KillMode=control-group --property=TimeoutStopSec=2"
        self.sh(f"systemd-run {unit} python3 -B {INSIDE}/room.py run")
        missing = self.with_fault(faults.DEAD)
        self.wait(lambda: self.states().get("idle", 0) >= len(self.nodes) - len(missing), limit, "all nodes idle")
        seconds = time.monotonic() - begin
        self.room("stop", *self.with_fault(faults.HUNG))
        return seconds

    def with_fault(self, kind: str) -> list[str]:
        """The nodes that have one kind of fault."""
        return [node for fault in self.hidden if fault["kind"] == kind for node in fault["nodes"]]

    def stop(self) -> None:
        """Stop the daemons and forget what they know."""
        self.sh(
            f"kill $(cat {PID}) 2>/dev/null; systemctl stop fleet 2>/dev/null; rm -rf /var/lib/fleet /run/fleet",
            check=False,
        )

    def states(self) -> dict[str, int]:
        """How many nodes are in which state."""
        found: dict[str, int] = {}
        for line in self.sh("sinfo -h -N -o %T", check=False).split():
            found[line] = found.get(line, 0) + 1
        return found

    def idle(self) -> list[str]:
        """The nodes that wait for work; Slurm calls idle* who does not answer."""
        lines = self.sh("sinfo -h -N -t idle -o '%N %T'", check=False).splitlines()
        return [line.split()[0] for line in lines if line.endswith(" idle")]

    def wait(self, question: t.Callable[[], t.Any], limit: float, what: str) -> t.Any:
        """Ask until the answer is true; who has waited long is asked less often, for a podman is work, too."""
        begin = time.monotonic()
        while True:
            answer = question()
            if answer:
                return answer
            waited = time.monotonic() - begin
            if waited > limit:
                raise SystemExit(f"not within {limit:.0f} s: {what}; nodes: {self.states()}")
            time.sleep(max(0.3, min(5, waited / 20)))

    def room(self, verb: str, *words: str) -> str:
        """Do something to the slurmd of nodes: stop, continue, kill, boot; or enter one with a command."""
        return self.exec(["python3", "-B", f"{INSIDE}/room.py", verb, *words])

    def options(self, **given: t.Any) -> Json:
        """What module certification is told about this fleet; ``given`` replaces it."""
        node = {"paths": ["/"], "sysfs": "/mnt", "kernel_log": "/var/lib/hpcai/kernel.log", "suites": {"full": SUITE}}
        plain = {
            "dir": "/shared/certification",
            "cluster": "fleet",
            "profile": self.profile,
            "node": node,
            "timeout": 120,
        }
        return {**plain, "agent": f"{INSIDE}/hpcai-agent.pyz", "poll": 0.5, **given}

    def certify(self, **given: t.Any) -> Json:
        """Lead a certification to its end as an ordinary user; returns what the module returns, with seconds.

        ``cpu`` is what it cost the controller: the coordinator with its commands, and slurmctld.
        """
        begin, before = time.monotonic(), self.slurmctld_cpu()
        found = json.loads(self.sh(self.coordinator(**given), user=USER).splitlines()[-1])
        more = {"seconds": time.monotonic() - begin, "cpu": found["cpu"] + self.slurmctld_cpu() - before}
        return {**found, **more}

    def slurmctld_cpu(self) -> float:
        """Seconds of processor that slurmctld has used."""
        cells = self.sh("cut -d' ' -f14,15 /proc/$(cat /run/fleet/slurmctld.pid)/stat").split()
        return sum(float(cell) for cell in cells) / 100  # USER_HZ

    def coordinator(self, **given: t.Any) -> str:
        """Prepare a certification and return the command that leads it, or leads on."""
        if not (self.home / "hpcai-agent.pyz").exists():
            _zipapp.put(_zipapp.build(), self.home / "hpcai-agent.pyz")
        self._write("options.json", self.options(**given))
        self.sh(f"install -d -o {USER} /shared/certification")
        return f"echo $$ > {PID}; exec python3 -IS {INSIDE}/certify.py {INSIDE}/hpcai-agent.pyz {INSIDE}/options.json"

    def warm(self) -> None:
        """Let one node test itself: what is the same on all of them is then known, and not found out by all at once."""
        config = {**self.options()["node"], "schema": 1, "node": self.idle()[0], "profile": self.profile}
        self._write("warm.json", config)
        suite = ["suite", "full", "--config", f"{INSIDE}/warm.json"]
        self.coordinator()
        self.room("enter", config["node"], "python3", "-IS", f"{INSIDE}/hpcai-agent.pyz", *suite)

    def run_folder(self, run: str) -> Path:
        return self.lab / "shared/certification" / run

    def certificate(self, run: str) -> Json:
        return dict(json.loads((self.run_folder(run) / "certificate.json").read_text()))

    def sh(self, command: str, user: str = "root", check: bool = True, limit: float = 900) -> str:
        """Run a shell command beside the controller."""
        return self.exec(["sh", "-c", command], user, check, limit)

    def argv(self, words: t.Sequence[str], user: str = "root") -> list[str]:
        """The command line that runs a command beside the controller."""
        front = ["podman", "exec", "--user", user, "--env", f"SLURM_CONF={CONF}", "--workdir", "/", self.container]
        return [*front, *words]

    def exec(self, words: t.Sequence[str], user: str = "root", check: bool = True, limit: float = 900) -> str:
        done = subprocess.run(self.argv(words, user), capture_output=True, text=True, check=False, timeout=limit)
        if check and done.returncode:
            said = (done.stdout + done.stderr)[-3000:]
            raise SystemExit(f"{self.container}: {' '.join(words)} ended with {done.returncode}: {said}")
        return done.stdout


def small(profile: Json, gpus: int) -> Json:
    """The same machine type with fewer GPUs and adapters, so that a step has few ranks."""
    topology = {**profile["topology"], "gpus": profile["topology"]["gpus"][:gpus]}
    devices = profile["infiniband"]["devices"][:gpus]
    infiniband = {**profile["infiniband"], "count": gpus, "devices": devices}
    infiniband["pci_domains"] = infiniband["pci_domains"][:gpus]
    counted = {("gpu_count", "gpus"), ("infiniband_ports", "active")}
    expect = [{**one, "value": gpus} if (one["check"], one["metric"]) in counted else one for one in profile["expect"]]
    return {
        **profile,
        "gpu": {**profile["gpu"], "count": gpus},
        "topology": topology,
        "infiniband": infiniband,
        "nvme": {"count": 0},  # one machine's disks are not those of hundreds of nodes
        "expect": [one for one in expect if not one["check"].startswith(("nvme", "storage"))],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["up", "down"])
    parser.add_argument("lab", type=Path)
    parser.add_argument("nodes", type=int, nargs="?", default=64)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--leaf", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help=f"kinds, of {', '.join(faults.KINDS)}")
    args = parser.parse_args()
    fleet = Fleet(args.lab)
    fleet.stop()
    if args.verb == "up":
        fleet.make(args.nodes, args.gpus, args.leaf)
        fleet.break_down(
            faults.draw(args.seed, [kind for kind in args.faults.split(",") if kind], fleet.nodes, args.leaf)
        )
        seconds = fleet.start()
        fleet.warm()
        fleet.coordinator(run="converge", options={"seed": args.seed})
        sys.stdout.write(f"{len(fleet.nodes)} nodes after {seconds:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
