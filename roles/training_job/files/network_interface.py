# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How this node reaches the others: ``network_interface.py [--address] HOST ...`` prints an interface, or its address.

gloo listens where the host's own name points to, which is the loopback device on many hosts, and on machines with
several networks one that the others need not reach. Nothing is printed where no way is known. Standard library only.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import typing as t

_SIOCGIFADDR = 0x8915  # of linux/sockios.h: the address of an interface
LOOPBACK = "lo"


def interface(host: str) -> str:
    """Return the network interface on the way to a host, or nothing where that is not known."""
    return way(host)[0]


def way(host: str) -> tuple[str, str]:
    """Return the interface on the way to a host, and this node's address there."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing
            mine = probe.getsockname()[0]
            for dummy, name in socket.if_nameindex():
                if _address(probe, name) == socket.inet_aton(mine):
                    return name, mine
    except OSError:
        pass
    return "", ""


def _address(probe: socket.socket, name: str) -> bytes:
    try:
        return fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24]
    except OSError:  # it has none
        return b""


def towards(hosts: t.Iterable[str]) -> tuple[str, str]:
    """Return the way to the first host that is not reached through the loopback device.

    One of the hosts is this one, whose own name often points there.
    """
    return next((found for found in map(way, hosts) if found[0] not in ("", LOOPBACK)), ("", ""))


def main(words: t.Sequence[str]) -> None:
    by_address = words[:1] == ["--address"]
    print(towards(words[1:] if by_address else words)[int(by_address)])


if __name__ == "__main__":
    main(sys.argv[1:])
