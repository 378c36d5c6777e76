# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ibstat."""

from __future__ import annotations

import sys
import typing as t

from emulation.machine import Json, Machine


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    nics = machine["nics"]
    if not nics:
        print("ibpanic: [4242] main: stat of IB device failed: No such file or directory", file=sys.stderr)
        return 255
    words = [word for word in arguments if not word.startswith("-")]
    if "-l" in arguments or "--list_of_cas" in arguments:
        print("\n".join(nic["name"] for nic in nics))
        return 0
    chosen = [nic for nic in nics if nic["name"] == words[0]] if words else nics
    if not chosen:
        print(f"ibpanic: [4242] ca_stat: can't get CA {words[0]}: No such device", file=sys.stderr)
        return 255
    for nic in chosen:
        _print(machine, nic, nics.index(nic))
    return 0


def _print(machine: Machine, nic: Json, number: int) -> None:
    ethernet, down = nic["link_layer"] == "Ethernet", machine.listed("ib_down", nic["name"])
    mark = f"0x00155dfffe33{number:04x}"
    print(
        f"CA '{nic['name']}'\n\tCA type: MT4124\n\tNumber of ports: 1\n\tFirmware version: 20.31.2006\n"
        "\tHardware version: 0"
    )
    print(f"\tNode GUID: {mark}\n\tSystem image GUID: {mark}\n\tPort 1:")
    for label, value in (
        ("State", "Down" if down else "Active"),
        ("Physical state", ("Disabled" if ethernet else "Polling") if down else "LinkUp"),
        ("Rate", 10 if down else nic["rate"]),
        ("Base lid", 0 if ethernet or down else number + 1),
        ("LMC", 0),
        ("SM lid", 0 if ethernet or down else 1),
        ("Capability mask", "0x04010000" if ethernet else "0xa651e84a"),
        ("Port GUID", mark),
        ("Link layer", nic["link_layer"]),
    ):
        print(f"\t\t{label}: {value}")
