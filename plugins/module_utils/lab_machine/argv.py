# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a virtual machine of the lab: pure functions. Private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import Disk, Spec

QEMU = "qemu-system-x86_64"
# Under emulation five-level page tables only cost time, and the mitigations protect nothing.
ACCELERATION = {
    "kvm": ["-accel", "kvm", "-cpu", "host"],
    "tcg": ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,la57=off"],
}
# An emulated processor counts its host's ticks: to measure them against other clocks takes longer than a second.
_CLOCK = {"kvm": [], "tcg": ["tsc=reliable"]}
# The initial RAM disk knows its root; named here, systemd would wait for it once more.
_KERNEL = ["console=ttyS0", "quiet", "loglevel=4", "net.ifnames=0", "mitigations=off", "panic=10"]


def qemu(spec: Spec, directory: str, disks: t.Sequence[Disk], initrd: str) -> list[str]:
    """Return the command that starts a machine whose files are in a directory, with these disks plugged in."""
    return [
        *[QEMU, "-name", spec.name, "-daemonize", "-pidfile", f"{directory}/pid"],
        *["-machine", "q35,smbus=off,sata=off,usb=off", *ACCELERATION[spec.accelerator]],
        *["-smp", str(spec.cpus), "-m", str(spec.memory), "-nodefaults", "-display", "none"],
        *["-serial", f"file:{directory}/console.log", "-qmp", f"unix:{directory}/qmp,server=on,wait=off"],
        *["-kernel", f"{spec.image}/vmlinuz", "-initrd", initrd, "-append", kernel(spec)],
        # Of a lab nothing has to survive this machine's power cut, only its own.
        *["-drive", f"if=none,id=root,file={directory}/root.qcow2,format=qcow2,cache=unsafe,discard=unmap"],
        *["-device", "virtio-blk-pci,drive=root"],
        *_network(spec),
        *["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"],
        *_slots(spec),
        *[word for disk in disks for word in _disk(spec, directory, disk)],
        *spec.options,
    ]


def kernel(spec: Spec) -> str:
    """The kernel's command line."""
    return " ".join([*_KERNEL, *_CLOCK[spec.accelerator], *spec.kernel_options])


def backing(directory: str, disk: Disk) -> str:
    """The file that holds a disk's content."""
    return f"{directory}/{disk.name}.raw"


def block_node(directory: str, disk: Disk) -> dict[str, t.Any]:
    """The arguments of blockdev-add for a disk."""
    file = {"driver": "file", "filename": backing(directory, disk)}
    return {"driver": "raw", "node-name": f"{disk.name}-content", "discard": "unmap", "file": file}


def device(spec: Spec, disk: Disk) -> dict[str, t.Any]:
    """The arguments of device_add for a disk: always in the slot of its own."""
    bus = f"slot{slot(spec, disk)}"
    return {"driver": "nvme", "id": disk.name, "bus": bus, "drive": f"{disk.name}-content", "serial": disk.serial}


def slot(spec: Spec, disk: Disk) -> int:
    """Where a disk is plugged in, from 1."""
    return 1 + [known.name for known in spec.disks].index(disk.name)


def _network(spec: Spec) -> list[str]:
    restrict = "off" if spec.route_out else "on"
    mac = "02:00:{:02x}:{:02x}:{:02x}:{:02x}".format(*map(int, spec.address.split("/")[0].split(".")))
    return [
        *["-netdev", f"user,id=host,ipv6=off,restrict={restrict},hostfwd=tcp:127.0.0.1:{spec.port}-:22"],
        *["-device", "virtio-net-pci,netdev=host,romfile="],
        *["-netdev", f"socket,id=lab,mcast={spec.network},localaddr=127.0.0.1"],
        *["-device", f"virtio-net-pci,netdev=lab,mac={mac},romfile="],
    ]


def _slots(spec: Spec) -> list[str]:
    ports = [f"pcie-root-port,id=slot{number},chassis={number},slot={number}" for number in range(1, spec.slots + 1)]
    return [word for port in ports for word in ("-device", port)]


def _disk(spec: Spec, directory: str, disk: Disk) -> list[str]:
    node = json.dumps(block_node(directory, disk))
    return ["-blockdev", node, "-device", ",".join(_property(item) for item in device(spec, disk).items())]


def _property(item: tuple[str, t.Any]) -> str:
    return str(item[1]) if item[0] == "driver" else f"{item[0]}={item[1]}"
