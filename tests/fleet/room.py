# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine room of a fleet, inside its container: one slurmctld, and a slurmd for every node.

    room.py run           all of them, until SIGTERM
    room.py stop|continue|kill|boot NODE...
    room.py enter NODE COMMAND...

Every slurmd lives in namespaces of its own, so that what its jobs see is a node: host name, /tmp, configuration and
state of the node agent, programs. They share processes, network and processors.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

HOME = Path(__file__).resolve().parent
STATE, RUN = Path("/var/lib/fleet"), Path("/run/fleet")
CONF = HOME / "etc/slurm.conf"
SLURM = 64030  # Debian's slurm
# Of every node its own; what is mounted over what everybody has.
OWN = {"tmp": "/tmp", "hpcai": "/etc/hpcai", "state": "/var/lib/hpcai"}
ENTRY = """
hostname "$1"
mount --make-rprivate /
for pair in {pairs}; do mount --bind "{state}/$1/${{pair%%:*}}" "${{pair#*:}}"; done
mount --bind {home}/machine/sys/"$1" /mnt
mount --bind {home}/etc /etc/slurm
mount --bind {home}/bin /usr/local/bin
exec slurmd -D -N "$1" -f {conf} >> {state}/$1/slurmd.out 2>&1
"""


def nodes() -> list[str]:
    return list(json.loads((HOME / "fleet.json").read_text(encoding="utf-8"))["nodes"])


def dead() -> set[str]:
    """Nodes that never answer."""
    hidden = json.loads((HOME / "hidden.json").read_text(encoding="utf-8"))
    return {node for fault in hidden if fault["kind"] == "dead" for node in fault["nodes"]}


def prepare() -> None:
    """Directories, device nodes and munge, which everything else needs."""
    for path in (STATE / "slurmctld", STATE / "spool", STATE / "log", RUN):
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, SLURM, SLURM)
    for place in OWN.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    for node in nodes():
        for name in OWN:
            (STATE / node / name).mkdir(parents=True, exist_ok=True)
        (STATE / node / "tmp").chmod(0o1777)
        (STATE / node / "state/kernel.log").touch()
        (STATE / "spool" / node).mkdir(exist_ok=True)
    for number in range(json.loads((HOME / "fleet.json").read_text(encoding="utf-8"))["gpus"]):
        if not Path(f"/dev/nvidia{number}").exists():
            os.mknod(f"/dev/nvidia{number}", 0o20666, os.makedev(195, number))
        Path(f"/dev/nvidia{number}").chmod(0o666)
    munge()


def munge() -> None:
    """The lab's key when there is one; hundreds of credentials at once need more threads than its two."""
    key, options = Path("/etc/munge/munge.key"), Path("/etc/default/munge")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
    options.write_text('OPTIONS="--num-threads=10"\n', encoding="utf-8")
    subprocess.run(["systemctl", "restart", "munge"], check=True)


def slurmd(node: str) -> subprocess.Popen[bytes]:
    pairs = " ".join(f"{name}:{place}" for name, place in OWN.items())
    entry = ENTRY.format(pairs=pairs, state=STATE, home=HOME, conf=CONF)
    child = subprocess.Popen(
        ["unshare", "--mount", "--uts", "sh", "-euc", entry, "sh", node],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "SLURM_CONF": "/etc/slurm/slurm.conf"},
    )
    (RUN / node).write_text(str(child.pid), encoding="utf-8")
    return child


def slurmctld() -> subprocess.Popen[bytes]:
    with (STATE / "log/slurmctld.out").open("ab") as out:
        words = ["runuser", "-u", "slurm", "--", "slurmctld", "-D", "-f", str(CONF)]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def find_pmix() -> None:
    """Let Slurm find PMIx by the name that it looks for, as role slurm does on machines."""
    for library in Path("/usr/lib").glob("*-linux-gnu/pmix2/lib/libpmix.so.2"):
        link = library.with_name("libpmix.so")
        if not link.exists():
            link.symlink_to(library.name)


def run() -> int:
    """Start everything, and start again what was asked to boot, and a slurmd that ended without having been killed.

    One of dozens that begin at once on a busy machine does, and a machine's systemd would not leave it at that.
    """
    find_pmix()
    prepare()
    signal.signal(signal.SIGTERM, lambda *dummy: sys.exit(0))  # systemd ends the others
    missing = dead()
    running = {slurmctld(): "", **{slurmd(node): node for node in nodes() if node not in missing}}
    while True:
        for node in nodes():
            with contextlib.suppress(FileNotFoundError):
                (RUN / f"{node}.boot").unlink()
                running[slurmd(node)] = node
        for child in [child for child in running if child.poll() is not None]:
            node = running.pop(child)
            if node and child.returncode != -signal.SIGKILL:
                time.sleep(1)
                running[slurmd(node)] = node
        time.sleep(0.2)


def send(number: signal.Signals, names: t.Iterable[str]) -> None:
    """Signal the slurmd of nodes, and nothing of their jobs."""
    for node in names:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((RUN / node).read_text(encoding="utf-8")), number)


def boot(names: t.Iterable[str]) -> None:
    for node in names:
        (RUN / f"{node}.boot").touch()


def enter(node: str, words: t.Sequence[str]) -> int:
    """Run a command as root on a node."""
    pid = (RUN / node).read_text(encoding="utf-8")
    return subprocess.run(["nsenter", "--target", pid, "--mount", "--uts", *words], check=False).returncode


def main(verb: str, *names: str) -> int:
    if verb == "run":
        return run()
    if verb == "enter":
        return enter(names[0], names[1:])
    if verb == "boot":
        boot(names)
    else:
        send({"stop": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL}[verb], names)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
