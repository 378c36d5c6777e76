# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics as ibnetdiscover prints them: the lines are those of infiniband-diags/ibnetdiscover.c in rdma-core 44."""

from __future__ import annotations

import typing as t

Ends = t.Tuple[str, int]


class Fabric:
    """Switches and adapters that are linked port by port; print() is what ibnetdiscover says of them."""

    def __init__(self) -> None:
        self.devices: dict[str, tuple[str, str, int]] = {}
        self.links: dict[str, dict[int, Ends]] = {}

    def switch(self, description: str, ports: int = 65) -> str:
        return self._device("S", description, ports)

    def adapter(self, description: str, *switches: str) -> str:
        guid = self._device("H", description, 1)
        for switch in switches:
            self.link(guid, switch)
        return guid

    def _device(self, kind: str, description: str, ports: int) -> str:
        guid = f"{0x0C42A10300000000 + len(self.devices) * 16:016x}"
        self.devices[guid] = (kind, description, ports)
        self.links[guid] = {}
        return guid

    def link(self, one: str, other: str) -> None:
        ports = [len(self.links[end]) + 1 for end in (one, other)]
        self.links[one][ports[0]] = (other, ports[1])
        self.links[other][ports[1]] = (one, ports[0])

    def print(self) -> str:
        first = next(iter(self.devices))
        text = "#\n# Topology file: generated on Mon Nov 23 08:21:07 2026\n#\n"
        text += f"# Initiated from node {first} port {first}\n"
        order = sorted(self.devices, key=lambda guid: self.devices[guid][0], reverse=True)
        return text + "".join(self._one(guid) for guid in order)

    def _one(self, guid: str) -> str:
        kind, description, ports = self.devices[guid]
        number = f"{int(guid, 16):x}"
        text = f"\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{number}\n"
        if kind == "S":
            text += f"switchguid=0x{number}({number})\n"
            text += f'Switch\t{ports} "S-{guid}"\t\t# "{description}" enhanced port 0 lid 3 lmc 0\n'
        else:
            text += f'caguid=0x{number}\nCa\t{ports} "H-{guid}"\t\t# "{description}"\n'
        return text + "".join(self._port(guid, *link) for link in sorted(self.links[guid].items()))

    def _port(self, guid: str, port: int, peer: Ends) -> str:
        kind, description, dummy = self.devices[peer[0]]
        own = "" if self.devices[guid][0] == "S" else f"({int(guid, 16):x}) "
        far = f"({int(peer[0], 16):x}) " if kind == "H" else ""
        far = f" {far}" if own and far else far
        lid = "lid 9 lmc 0 " if own else ""
        said = f'{lid}"{description}" lid 7 4xNDR'
        return f'[{port}]{own}\t"{kind}-{peer[0]}"[{peer[1]}]{far}\t\t# {said}\n'


def fat_tree(pods: int = 2, leaves: int = 2, nodes: int = 2, spines: int = 2, cores: int = 2) -> Fabric:
    """Three levels: nodes c1, c2 .. on leaves, each pod with its spines, cores above all of them."""
    fabric, number = Fabric(), 0
    tops = [fabric.switch(f"MF0;core{n + 1}:MQM9700/U1") for n in range(cores)]
    for pod in range(pods):
        above = [fabric.switch(f"MF0;p{pod + 1}spine{n + 1}:MQM9700/U1") for n in range(spines)]
        for spine in above:
            for top in tops:
                fabric.link(spine, top)
        for leaf in range(leaves):
            below = fabric.switch(f"MF0;p{pod + 1}leaf{leaf + 1}:MQM9700/U1")
            fabric.adapter("Mellanox Technologies Aggregation Node", below)
            for spine in above:
                fabric.link(below, spine)
                fabric.link(below, spine)
            for dummy in range(nodes):
                number += 1
                fabric.adapter(f"c{number} mlx5_0", below)
    return fabric


def rails(units: int = 2, nodes: int = 2, count: int = 8) -> Fabric:
    """As in a SuperPOD: in each unit a leaf switch for each rail, and a spine for each rail over all units."""
    fabric, number = Fabric(), 0
    spines = [fabric.switch(f"MF0;spine{rail + 1}:MQM9700/U1") for rail in range(count)]
    for unit in range(units):
        below = [fabric.switch(f"MF0;su{unit + 1}-leaf{rail + 1}:MQM9700/U1") for rail in range(count)]
        for rail, leaf in enumerate(below):
            fabric.link(leaf, spines[rail])
        for dummy in range(nodes):
            number += 1
            for rail, leaf in enumerate(below):
                fabric.adapter(f"dgx{number:02} mlx5_{rail}", leaf)
    return fabric
