# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a log tells beside the table of nccl-tests: the network that NCCL used, ranks with wrong values. Private.

One pass over lines, constant memory: what is kept grows with the number of hosts and devices, not with the log.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.srun_busy import busy

_LONGEST = 4096
_HOST = re.compile(r"([A-Za-z0-9_.-]+):\d+:\d+ \[")
# Up to 2.26 "Using network IB", later "Assigned NET plugin IB to comm"; plugins add names of their own.
_USED = re.compile(r"NCCL INFO (?:Using network (\S+)|Assigned NET plugin (\S+) to comm)")
_CHANNEL = re.compile(r" via NET/([^/\s]+)(\S*)")
_DEVICES = re.compile(r"NET/IB ?: Using (.*)")
_DEVICE = re.compile(r"\[\d+\]([^\s:]+:\d+)/(IB|RoCE)")
_INTERFACES = re.compile(r"NET/Socket ?: Using (.*)")
_INTERFACE = re.compile(r"\[\d+\]([^\s:]+):")
# Debug builds of nccl-tests tell which rank got wrong values.
_WRONG = re.compile(r"\brank=(\d+) #wrong=(\d+)")
SOCKET, ROCE = "Socket", "RoCE"


class Network:
    """What one log says, line by line."""

    def __init__(self) -> None:
        self.used: dict[str, set[str]] = {}
        self.devices: dict[str, set[str]] = {}
        self.layers: set[str] = set()
        self.interfaces: set[str] = set()
        self.direct = {True: 0, False: 0}
        self.wrong: dict[int, int] = {}
        self.busy = ""

    def read(self, log: t.TextIO) -> Network:
        """Look at a whole log; a line without end is looked at in pieces."""
        for line in iter(lambda: log.readline(_LONGEST), ""):
            if "NET" in line or "network" in line:
                self._network(line)
            elif "#wrong=" in line:
                self._values(line)
            elif "Unable to allocate" in line:
                self.busy = busy(line) or self.busy
        return self

    def _values(self, line: str) -> None:
        for rank, count in _WRONG.findall(line):
            number = int(rank[:9])
            self.wrong[number] = self.wrong.get(number, 0) + int(count[:18])

    def _network(self, line: str) -> None:
        if "NCCL INFO" not in line:
            return
        found = _HOST.search(line)
        host = found.group(1) if found else ""
        channel = _CHANNEL.search(line)
        if channel:
            self._use(channel.group(1), host)
            self.direct["/GDRDMA" in channel.group(2)] += 1
            return
        used = _USED.search(line)
        if used:
            self._use(used.group(1) or used.group(2), host)
            return
        devices, interfaces = _DEVICES.search(line), _INTERFACES.search(line)
        if devices:
            for name, layer in _DEVICE.findall(devices.group(1)):
                self.devices.setdefault(host, set()).add(name)
                self.layers.add(layer)
        elif interfaces:
            self.interfaces.update(_INTERFACE.findall(interfaces.group(1)))

    def _use(self, name: str, host: str) -> None:
        self.used.setdefault(name, set()).add(host)

    @property
    def kind(self) -> str | None:
        """Return what carried the data: InfiniBand, RoCE, Socket or the name of a plug-in; None when no line says it.

        One host on sockets holds up all, so it decides; with Ethernet devices alone NCCL speaks RoCE.
        """
        if SOCKET in self.used:
            return SOCKET
        names = sorted(self.used)
        if any(name.startswith("IB") for name in names):
            return ROCE if self.layers == {ROCE} else "InfiniBand"
        return ", ".join(names) or None

    def facts(self) -> dict[str, t.Any]:
        """Return what goes into a record."""
        counts = {host: len(names) for host, names in sorted(self.devices.items())}
        channels = sum(self.direct.values())
        return {
            "network": self.kind,
            "network_plugins": sorted(self.used),
            "network_interfaces": sorted(self.interfaces),
            "infiniband_devices": counts,
            "gpu_direct": self.direct[True] == channels if channels else None,
        }

    def hosts(self, name: str) -> list[str]:
        """Return the hosts that said they use a network."""
        return sorted(host for host in self.used.get(name, ()) if host)
