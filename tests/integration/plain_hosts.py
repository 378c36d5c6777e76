# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two hosts that share a file system and nothing else: host name, network devices and processes are each one's own.

They are namespaces of the kernel, joined by one virtual cable. Ansible reaches them by its plugin for SSH, whose
program is one that enters the host. Their names do not resolve, as on machines that no name service knows.

As a program, this file is systemd-run and systemctl of such a host: ``plain_hosts.py DIRECTORY NAME ARGUMENTS``. A
unit is a process with a namespace of process numbers of its own, so that all it started ends with it.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

if t.TYPE_CHECKING:
    from ansible_playbook import Ended

Json = t.Dict[str, t.Any]
NAMES = ("node1", "node2")
# Stays, as on a cluster.
SHARED = Path(__file__).resolve().parents[2] / ".build/training"
_PROGRAMS = ("ip", "unshare", "nsenter", "hostname")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROPERTIES = ("KillMode", "TimeoutStopSec", "RuntimeMaxSec", "LimitMEMLOCK", "LimitNOFILE")


class Unable(RuntimeError):
    """This machine lets nobody make such hosts; the text says why."""


class PlainHosts:
    """The two hosts; ``close`` ends all that runs on them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.holders: dict[str, subprocess.Popen[str]] = {}
        self.inside: dict[str, int] = {}  # the first process of each host, by its number here
        missing = [name for name in _PROGRAMS if not shutil.which(name)]
        if missing or os.geteuid() != 0:
            raise Unable(f"hosts of one's own need root, and {', '.join(missing or _PROGRAMS)}")
        try:
            for name in NAMES:
                self._start(name)
            self._cable()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def address(name: str) -> str:
        return f"192.0.2.{NAMES.index(name) + 1}"

    def _start(self, name: str) -> None:
        script = f"hostname {name} && ip link set lo up && echo ready && exec sleep infinity"
        apart = ["unshare", "--uts", "--net", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        holder = subprocess.Popen(
            [*apart, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.holders[name] = holder
        assert holder.stdout
        assert holder.stderr
        if holder.stdout.readline() != "ready\n":
            raise Unable(f"no host of one's own here: {holder.stderr.read().strip()}")
        (self.inside[name],) = children(holder.pid)
        from stand_in import instead, stand_in  # as a program, this file has Python's own modules alone

        folder = self.directory / name
        (folder / "bin").mkdir(parents=True)
        (folder / "units").mkdir()
        for program in ("systemctl", "systemd-run"):
            instead(folder / "bin" / program, sys.executable, __file__, folder / "units", program)
        enter = [*self.enter(name), "env", f"PATH={folder}/bin:{_PATH}"]
        stand_in(folder / "ssh", "ssh_here.sh", command=shlex.join(enter))

    def _cable(self) -> None:
        first, second = (self.inside[name] for name in NAMES)
        self._ip(first, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(second))
        for name, inside in self.inside.items():
            self._ip(inside, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            self._ip(inside, "link", "set", "eth0", "up")

    @staticmethod
    def _ip(inside: int, *words: str) -> None:
        done = subprocess.run(
            ["nsenter", f"--target={inside}", "--net", "ip", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Unable(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def inventory(self, **groups: t.Sequence[str]) -> Json:
        """Return an inventory of the hosts, with these groups."""
        hosts = {
            name: {
                "ansible_host": self.address(name),
                "ansible_connection": "ansible.builtin.ssh",
                "ansible_ssh_executable": f"{self.directory}/{name}/ssh",
                "ansible_ssh_transfer_method": "piped",
                "ansible_become_method": "ansible.builtin.su",
                "ansible_python_interpreter": sys.executable,
                # Where no name resolves, hosts are told each other's addresses.
                "ddp_launch_address": "{{ ansible_host }}",
            }
            for name in NAMES
        }
        children = {group: {"hosts": {name: {} for name in names}} for group, names in groups.items()}
        return {"all": {"hosts": hosts, "children": children}}

    def play(self, playbook: str, seconds: float = 600, **inputs: t.Any) -> Ended:
        """Run a playbook as a newcomer calls it; its record is in ``report``."""
        from ansible_playbook import ansible_playbook, few_settings  # not for the program that this file is, too

        inventory = self.directory / "hosts.json"
        inventory.write_text(json.dumps(self.inventory(slurm_compute=NAMES)))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_"))}
        kept = {key: value for key, value in os.environ.items() if key == "HPCAI_CACHE_DIR"}
        environment.update(kept, ANSIBLE_CONFIG=str(few_settings()), ANSIBLE_NOCOLOR="1")
        environment.update(
            ANSIBLE_CALLBACKS_ENABLED="hpcai.gpu_cluster.run_record", HPCAI_REPORT_DIR=str(self.directory / "report")
        )
        inputs = {"cluster_shared_dir": str(SHARED), "cluster_user": "root", **inputs}
        words = ("-i", inventory, "-e", json.dumps(inputs), f"hpcai.gpu_cluster.{playbook}")
        return ansible_playbook(*words, cwd=self.directory, env=environment, seconds=seconds)

    def stack(self, **inputs: t.Any) -> Ended:
        """Put PyTorch into the shared directory, which takes seconds where an earlier run did."""
        SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
        own = {"stack_host": NAMES[0], "pytorch_proof": "local", "pytorch_staging_dir": str(SHARED / "staging")}
        # Compilers take as long as the machine is busy, Apex's hours.
        return self.play("stack", 6 * 3600, pytorch_python=sys.executable, **own, **inputs)

    def trainings(self) -> dict[str, Json]:
        """Return the records of trainings by name."""
        checks = json.loads((self.directory / "report/run.json").read_text())["checks"]
        return {one["context"]["name"]: one for one in checks if one["check"] == "training"}

    def enter(self, name: str) -> list[str]:
        """Return the beginning of a command that runs on a host."""
        return ["nsenter", f"--target={self.inside[name]}", "--uts", "--net", "--pid", "--mount"]

    def trained_by(self) -> list[str]:
        """Return the command lines of a training that are left on the hosts."""
        script = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$file; echo; done 2>/dev/null"
        lines = [
            line
            for name in NAMES
            for line in subprocess.run(
                [*self.enter(name), "sh", "-c", script], capture_output=True, text=True, check=False
            ).stdout.splitlines()
        ]
        assert any("sleep infinity" in line for line in lines), lines
        return [line for line in lines if "ddp_node" in line or "torch.distributed" in line]

    def close(self) -> None:
        for holder in self.holders.values():
            holder.kill()
            holder.communicate()


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _alive_unit(path: Path) -> Json | None:
    """Return the record of a unit that runs; its process is nobody's child, so that it is never a zombie for long."""
    try:
        unit: Json = json.loads(path.read_text())
        fields = Path(f"/proc/{unit['pid']}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return unit if fields[0] != "Z" and fields[19] == unit["since"] else None


def systemd_run(folder: Path, words: list[str]) -> int:
    options, properties = {}, {}
    while words and words[0] != "--":
        name, dummy, value = words.pop(0).partition("=")
        if name == "--property":
            key, dummy, value = value.partition("=")
            properties[key] = value
        else:
            options[name] = value
    unknown = set(options) - {"--unit", "--uid", "--collect", "--quiet", "--description"} | (
        set(properties) - set(_PROPERTIES)
    )
    if unknown or len(words) < 2 or not Path(words[1]).is_absolute():
        print(f"Failed to start transient service unit: {sorted(unknown) or words}", file=sys.stderr)
        return 1
    path = folder / options["--unit"]
    if _alive_unit(path):
        about = f"Unit {path.name}.service was already loaded or has a fragment file."
        print(f"Failed to start transient service unit: {about}", file=sys.stderr)
        return 1
    owner = pwd.getpwnam(options["--uid"])
    environment = {"PATH": _PATH, "HOME": owner.pw_dir, "USER": owner.pw_name, "LOGNAME": owner.pw_name}
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", *words[1:]],
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        user=owner.pw_uid if owner.pw_uid else None,
    )
    since = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    path.write_text(json.dumps({"pid": process.pid, "since": since, "stop": int(properties["TimeoutStopSec"])}))
    return 0


def systemctl(folder: Path, words: list[str]) -> int:
    verb, name = words[0], words[-1].removesuffix(".service")
    unit = _alive_unit(folder / name)
    if verb == "is-active":
        if "--quiet" not in words:
            print("active" if unit else "inactive")
        return 0 if unit else 3
    if verb != "stop":
        print(f"Unknown command verb '{verb}'.", file=sys.stderr)
        return 1
    if not unit:
        print(f"Failed to stop {name}.service: Unit {name}.service not loaded.", file=sys.stderr)
        return 5
    for child in children(unit["pid"]):
        os.kill(child, signal.SIGTERM)
    end = time.monotonic() + unit["stop"]
    while _alive_unit(folder / name):
        if time.monotonic() > end:
            os.kill(unit["pid"], signal.SIGKILL)
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    program = {"systemd-run": systemd_run, "systemctl": systemctl}[sys.argv[2]]
    sys.exit(program(Path(sys.argv[1]), sys.argv[3:]))
