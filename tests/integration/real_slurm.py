# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real slurmctld for files that somebody wrote for it, as any user and in a directory of its own.

The distribution's package is downloaded and unpacked, not installed: no user, no service and no munged are made.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".build/slurmctld"
# What a slurm.conf for a scheduler names outside of its own directory.
PLACES = ("/etc/slurm", "/var/log", "/var/run", "/var/spool", "/sched", "/opt/azurehpc")
STARTED = re.compile(r"Running as primary controller")


class Slurmctld(t.NamedTuple):
    program: Path
    plugins: Path

    def start(self, directory: Path, files: t.Mapping[str, str]) -> str:
        """Start it with these files of /etc/slurm, and return what it said until it ran or ended."""
        conf = directory / "etc/slurm"
        for place in PLACES:
            (directory / place[1:]).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (conf / name).write_text(self._moved(text, directory))
        own = [f"SlurmUser={getpass.getuser()}", f"PluginDir={self.plugins}", f"SlurmctldPort={free_port()}"]
        # No munged runs; who may speak to this slurmctld is not what is looked at.
        own += ["AuthType=auth/none", "CredType=cred/none"]
        text = (conf / "slurm.conf").read_text()
        kept = [line for line in text.splitlines() if not line.lower().startswith(("slurmuser=", "slurmctldlogfile="))]
        (conf / "slurm.conf").write_text("\n".join([*kept, *own]) + "\n")
        state = next(line.partition("=")[2] for line in kept if line.startswith("StateSaveLocation="))
        Path(state).mkdir(parents=True)
        return self._watch(directory, [str(self.program), "-D", "-c", "-f", str(conf / "slurm.conf")])

    @staticmethod
    def _moved(text: str, directory: Path) -> str:
        for place in PLACES:
            text = re.sub(rf"(?<=[=\s]){place}(?=[/\s])", f"{directory}{place}", text)
        return text

    def _watch(self, directory: Path, argv: list[str]) -> str:
        libraries = f"{self.plugins}:{self.plugins.parent}"
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "LC_ALL": "C"}
        log = directory / "slurmctld.out"
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
        try:
            end = time.monotonic() + patience(30)
            while time.monotonic() < end and process.poll() is None and not STARTED.search(log.read_text()):
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
        return log.read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def slurmctld() -> Slurmctld:
    """Unpack the package and what it lacks on this machine, once."""
    if not shutil.which("apt-get"):
        pytest.skip("slurmctld is taken from a package of Debian or Ubuntu")
    UNPACKED.mkdir(parents=True, exist_ok=True)
    if not list(UNPACKED.glob("usr/sbin/slurmctld*")):
        _unpack("slurmctld")
    program = sorted(UNPACKED.glob("usr/sbin/slurmctld*"))[0]
    plugins = next(UNPACKED.glob("usr/lib/*/slurm-wlm/auth_none.so")).parent
    return Slurmctld(program, plugins)


def _unpack(package: str) -> None:
    # NoLocking: no root is needed to ask what would be installed.
    ask = [
        "apt-get",
        "-o",
        "Debug::NoLocking=true",
        "-qq",
        "--print-uris",
        "--no-install-recommends",
        "install",
        package,
    ]
    names = re.findall(r"^'\S+' ([^_\s]+)_\S+", _run(ask, ROOT), re.MULTILINE)
    assert package in names, f"apt-get offers no {package}: apt-get update?"
    _run(["apt-get", "download", "-qq", *names], UNPACKED)
    for archive in UNPACKED.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(UNPACKED)], UNPACKED)


def _run(argv: list[str], directory: Path) -> str:
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, timeout=patience(300), check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout
