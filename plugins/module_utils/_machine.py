# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is, in the names of Ansible's own facts: text to facts. No I/O; private."""

from __future__ import annotations

import re
import typing as t

LSCPU = ["lscpu", "--parse=SOCKET,CORE"]
DPKG = ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}${Package}\n"]
_SYSTEMS = {"debian": "Debian", "ubuntu": "Ubuntu"}


class MachineError(ValueError):
    """The text is not what the tool prints; fit for the user."""


def system(os_release: str, debian_version: str) -> dict[str, str]:
    """Distribution and release; Debian tells its point release only in a file of its own."""
    found = {key: value.strip("\"'") for key, value in re.findall(r"^(\w+)=(.*)$", os_release, re.MULTILINE)}
    version, point = found.get("VERSION_ID", ""), debian_version.strip()
    if found.get("ID") == "debian" and point.startswith(f"{version}."):
        version = point
    return {
        "distribution": _SYSTEMS.get(found.get("ID", ""), found.get("NAME", "unknown")),
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "distribution_release": found.get("VERSION_CODENAME", ""),
        "os_family": "Debian" if "debian" in (found.get("ID"), *found.get("ID_LIKE", "").split()) else "unknown",
    }


def processors(lscpu: str) -> dict[str, int]:
    """Sockets, cores of each and threads of each, as Slurm asks for them."""
    threads = [line.split(",") for line in lscpu.split() if re.fullmatch(r"\d*,\d+", line)]
    if not threads:
        raise MachineError(f"lscpu printed no processors but {lscpu.strip()[-200:]!r}")
    sockets = {socket for socket, dummy in threads}
    cores = {(socket, core) for socket, core in threads}
    return {
        "processor_count": len(sockets),
        "processor_cores": len(cores) // len(sockets),
        "processor_threads_per_core": len(threads) // len(cores),
        "processor_vcpus": len(threads),
    }


def memory(meminfo: str) -> dict[str, int]:
    match = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    if not match:
        raise MachineError("meminfo has no MemTotal")
    return {"memtotal_mb": int(match.group(1)) // 1024}


def packages(dpkg: str) -> dict[str, t.Any]:
    """Names of what is installed and configured, held packages too."""
    return {"hpcai_packages": sorted({line[3:] for line in dpkg.splitlines() if line[1:2] == "i"})}
