# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch packages of a newer Debian release, and what they need on a node, into a repository of files.

apt does it all, in a root of its own, and checks the archive's signatures. Only their age is not checked: a mirror that
lags has the same packages, and the test wants another release of Slurm, not the newest one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CONFIG = """
Dir "{root}";
Dir::State::status "{status}";
Dir::Cache::archives "{cache}";
Dir::Bin::methods "/usr/lib/apt/methods";
APT::Architectures {{ "{architecture}"; }};
APT::Architecture "{architecture}";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
"""


def fetch(arguments: argparse.Namespace, root: Path) -> None:
    """Have apt bring what a node lacks for the packages."""
    for name in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial"):
        (root / name).mkdir(parents=True)
    (arguments.cache / "partial").mkdir(parents=True, exist_ok=True)
    options = f"[signed-by={KEYRING} check-valid-until=no]"
    lines = [f"deb {options} {arguments.mirror} {suite} main" for suite in arguments.suites.split(",")]
    (root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
    config = root / "apt.conf"
    places = {"root": root, "status": arguments.status.resolve(), "cache": arguments.cache.resolve()}
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    config.write_text(CONFIG.format(architecture=architecture, **places))
    environment = {**os.environ, "APT_CONFIG": str(config)}
    subprocess.run(["apt-get", "-qq", "update"], env=environment, check=True)
    command = ["apt-get", "-qq", "--yes", "--download-only", "install", *arguments.packages]
    subprocess.run(command, env=environment, check=True)


def needed(arguments: argparse.Namespace, root: Path) -> list[str]:
    """The files that belong to the packages; the cache may hold those of earlier days."""
    command = ["apt-get", "-qq", "--simulate", "install", *arguments.packages]
    text = subprocess.check_output(command, env={**os.environ, "APT_CONFIG": str(root / "apt.conf")}, text=True)
    rows = [line.replace("(", " ").replace("[", " [").split() for line in text.splitlines() if line.startswith("Inst ")]
    found = []
    for row in rows:
        version = next(word for word in row[2:] if not word.startswith("["))
        found.append(f"{row[1]}_{version.replace(':', '%3a')}_")
    return found


def index(directory: Path) -> str:
    """The Packages file."""
    entries = []
    for path in sorted(directory.glob("*.deb")):
        fields = subprocess.check_output(["dpkg-deb", "--field", str(path)], text=True).rstrip()
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries.append(f"{fields}\nFilename: ./{path.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    return "\n".join(entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirror", required=True)
    parser.add_argument("--suites", required=True, help="newest first, separated by commas")
    parser.add_argument("--status", required=True, type=Path, help="dpkg's list of a node")
    parser.add_argument("--cache", required=True, type=Path, help="where packages are kept from run to run")
    parser.add_argument("place", type=Path)
    parser.add_argument("packages", nargs="+")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpcai-apt-") as temporary:
        root = Path(temporary)
        fetch(arguments, root)
        wanted = needed(arguments, root)
    arguments.place.mkdir(parents=True, exist_ok=True)
    for path in arguments.cache.glob("*.deb"):
        if path.name.startswith(tuple(wanted)):
            shutil.copy(path, arguments.place)
    (arguments.place / "Packages").write_text(index(arguments.place))


if __name__ == "__main__":
    main()
