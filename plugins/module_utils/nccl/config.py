# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nccl_config: NCCL's topology file, and a block of ours at the end of ``/etc/nccl.conf``.

Several people write to that file.
"""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path
from xml.sax.saxutils import quoteattr

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import (
    MARK,
    FileChange,
    FileModule,
    ForeignFile,
    Json,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.settings import unit_exists

# NCCL's topology file from a profile: which GPU and adapter are near which CPUs. Pure.
# In the form that NCCL reads (2.30, src/graph/xml.cc): no declaration, no tabs, at most 254 characters in a value. NCCL
# adds what it finds on the machine (GPUs, NVLinks, ports) to the nodes whose bus address it meets here, so the file has
# only what a virtual machine hides: the PCI bridges and NUMA nodes above the devices.


_GPU = "0x030200"
_NIC = "0x020700"
_BRIDGE = "0x060400"
BRIDGES = ("none", "gpu", "numa_node")
Profile = t.Mapping[str, t.Any]
Device = t.Tuple[str, str]


class NcclTopologyError(ValueError):
    """A profile does not say enough; the text is fit for the user."""


def topology_xml(profile: Profile) -> str:
    """Return the topology file of a machine type."""
    topology, cpus = _needed(profile, "topology"), _needed(profile, "vcpus")
    link, bridge = _needed(topology, "link", "topology"), _needed(topology, "bridge", "topology")
    cpu = _needed(topology, "cpu", "topology")
    if bridge not in BRIDGES:
        raise NcclTopologyError(f"topology.bridge is {bridge!r}; {', '.join(BRIDGES)} are known")
    nodes = int(_needed(profile, "numa_nodes"))
    number = 0
    name = f"{profile.get('vm_size', '')} ({MARK}, role node_tuning)"
    lines = [f"<system {_attributes(version=1, name=name)}>"]
    for node in range(nodes):
        names = {"arch": "arch", "vendor": "vendor", "familyid": "family", "modelid": "model"}
        about = {name: _needed(cpu, key, "topology.cpu") for name, key in names.items()}
        lines.append(f"  <cpu {_attributes(numaid=node, affinity=affinity(int(cpus), nodes, node), **about)}>")
        for group in groups(profile, node):
            number += bridge != "none"
            lines += _devices(group, link, f"ffff:ff:{number:02x}.0" if bridge != "none" else "")
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def _needed(mapping: Profile, key: str, within: str = "") -> t.Any:
    if mapping.get(key) is None:
        raise NcclTopologyError(f"the profile has no {within}{'.' if within else ''}{key}")
    return mapping[key]


def groups(profile: Profile, node: int) -> list[list[Device]]:
    """Return the devices of a NUMA node by the bridge that they share, each as (PCI domain, class)."""
    ports = profile.get("infiniband") or {}
    domain = dict(zip(ports.get("devices", []), ports.get("pci_domains", [])))
    taken: set[str] = set()
    groups: list[list[Device]] = []
    for gpu in _needed(profile["topology"], "gpus", "topology"):
        nic = gpu.get("nic")
        devices = [(gpu["pci_domain"], _GPU)]
        if nic and nic not in taken:
            devices.append((_needed(domain, nic, "infiniband.pci_domains"), _NIC))
            taken.add(nic)
        groups += [devices] if gpu["numa_node"] == node else []
    if profile["topology"]["bridge"] == "gpu":
        return groups
    return [[device for devices in groups for device in devices]] if groups else []


def affinity(cpus: int, nodes: int, node: int) -> str:
    """Return the CPUs of a NUMA node as the kernel writes masks; Azure numbers them node after node."""
    each = cpus // nodes
    groups = -(-cpus // 32)
    text = f"{((1 << each) - 1) << (node * each):0{groups * 8}x}"
    return ",".join(text[i : i + 8] for i in range(0, len(text), 8))


def _devices(group: t.Sequence[Device], link: Profile, bridge: str) -> list[str]:
    attributes = {f"link_{key}": _needed(link, key, "topology.link") for key in ("speed", "width")}
    pad = "      " if bridge else "    "
    lines = [
        f"{pad}<pci {_attributes(busid=f'{domain}:00:00.0', **{'class': kind}, **attributes)}/>"
        for domain, kind in group
    ]
    if not bridge:
        return lines
    return [f"    <pci {_attributes(busid=bridge, **{'class': _BRIDGE}, **attributes)}>", *lines, "    </pci>"]


def _attributes(**pairs: t.Any) -> str:
    return " ".join(f"{name}={quoteattr(str(value))}" for name, value in pairs.items())


# The text of the file: our block, the lines of others, and what NCCL makes of both. Pure.


PATH = "/etc/nccl.conf"
# NCCL ends for a graph file that it cannot open (src/graph/xml.cc), and goes its own way without a topology file.
FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
_MADE = " (file, too)"
_JOINED = " (newline, too)"
_BEGIN = f"# BEGIN {MARK}, role node_tuning"
_END = "# END hpcai.gpu_cluster"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 1023


class NcclConfError(ValueError):
    """A variable cannot stand in NCCL's file; the text is fit for the user."""


def others(text: str | None) -> str | None:
    """Return the file without our block and the newline that came with it; None when we made the file for the block."""
    if text is None:
        return None
    match = re.search(rf"^{re.escape(_BEGIN)}(.*)\n(?s:.*?)^{re.escape(_END)}\n?", text, re.MULTILINE)
    if not match:
        return text
    before, after, notes = text[: match.start()], text[match.end() :], match.group(1)
    if _JOINED in notes and not after:
        before = before[:-1]
    foreign = before + after
    return None if _MADE in notes and not foreign else foreign


def decode(content: bytes) -> str:
    """Return the file's text with its line ends as they are."""
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise NcclConfError(f"{PATH} is no text in UTF-8: {exc}. Correct it or move it away") from exc


def entries(text: str) -> list[tuple[str, str]]:
    """Return the pairs of name and value as NCCL reads them: only lines that start with '#' are comments."""
    lines = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    pairs = [line.partition("=") for line in lines if not line.startswith("#")]
    return [(name, value) for name, equals, value in pairs if equals]


def effective(text: str) -> dict[str, str]:
    """Return the value that each name gets from the file."""
    values: dict[str, str] = {}
    for name, value in entries(text):
        values.setdefault(name, value)
    return values


def validate(variables: t.Mapping[str, str]) -> None:
    """Refuse names and values that NCCL would misread."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise NcclConfError(f"{name!r} is no name of a variable: letters, digits and '_' are")
        if "\n" in value or len(value) > _LONGEST:
            raise NcclConfError(f"{name} has {len(value)} characters or several lines; NCCL reads one of {_LONGEST}")


def merge(
    text: str | None,
    variables: t.Mapping[str, str],
    same: t.Callable[[str, str], bool] = str.__eq__,
) -> tuple[str | None, dict[str, str], list[ForeignFile]]:
    """Return the file with our block, the variables in that block, and findings; lines of others stay and win."""
    validate(variables)
    foreign = others(text)
    theirs = effective(foreign or "")
    findings = _remarks(foreign or "")
    ours = {}
    for name, value in sorted(variables.items()):
        if name not in theirs:
            ours[name] = value
        elif theirs[name] != value and not (name in FILES and same(theirs[name], value)):
            message = f"{PATH} says {theirs[name]}, which stays; the role's {value} is not set"
            findings.append(ForeignFile("warn", name, message))
    if not ours:
        return foreign, ours, findings
    notes = _MADE if foreign is None else _JOINED if foreign and not foreign.endswith("\n") else ""
    room = "\n" if notes == _JOINED else ""
    return f"{foreign or ''}{room}{block(ours, notes)}", ours, findings


def block(ours: t.Mapping[str, str], notes: str = "") -> str:
    """Return our lines between their marks; the notes say whether the file or a newline goes when the block goes."""
    lines = "".join(f"{name}={value}\n" for name, value in sorted(ours.items()))
    return f"{_BEGIN}{notes}\n{lines}{_END}\n"


def _remarks(text: str) -> list[ForeignFile]:
    """Return findings about lines of others that NCCL reads in another way than they look."""
    findings: list[ForeignFile] = []
    values: dict[str, str] = {}
    for name, value in entries(text):
        if not _NAME.fullmatch(name):
            findings.append(
                ForeignFile("warn", PATH, f"NCCL takes {name!r} for the name of a variable, which nothing reads")
            )
        elif values.setdefault(name, value) != value:
            findings.append(
                ForeignFile("warn", name, f"stands twice in {PATH}; the first, {values[name]}, is what NCCL takes")
            )
    return findings


def enroot_mounts(paths: t.Sequence[str]) -> str:
    """Return lines of an fstab with which enroot mounts files of the host in containers; missing files are skipped."""
    options = "x-create=file,bind,ro,nosuid,nodev,noexec,nofail,silent"
    return "".join(f"{path} {path} none {options}\n" for path in sorted(set(paths)))


def dropin(copy: str) -> str:
    """Return a drop-in for the service of Azure's images that rewrites the file at boot: it appends our lines again."""
    return "".join(
        [
            "[Service]\n",
            f"ExecStartPost=-/bin/sed -i '/^{_BEGIN}/,/^{_END}/d' {PATH}\n",
            f"ExecStartPost=-/bin/sh -c 'cat {copy} >>{PATH}'\n",
        ]
    )


# The module: which files there shall be, and bringing them there.


MOUNTS = "/etc/enroot/mounts.d/60-hpcai-nccl.fstab"
# Azure's HPC images: a script of theirs writes /etc/nccl.conf at every boot.
IMAGE_UNIT = "sku-customizations.service"
COPY = "/etc/hpcai/nccl.conf"
DROPIN = f"/etc/systemd/system/{IMAGE_UNIT}.d/hpcai-nccl-conf.conf"
_HEAD = f"# {MARK}, role node_tuning. Changes made here are lost.\n"
_LINK = ForeignFile("warn", PATH, "is a link and stays as it is. Make it a file to have the role's lines")
Text = t.Dict[str, t.Union[str, None]]


class TopologyOptions(t.NamedTuple):
    """The topology file that jobs shall use (an empty path if there is none), and its content if it is ours."""

    path: str
    content: str | None
    findings: list[ForeignFile]


def topology(path: str | None, profile: t.Mapping[str, t.Any]) -> TopologyOptions:
    """Use somebody else's file as it is; make the file where there is none, or one of ours."""
    if not path:
        return TopologyOptions("", None, [])
    file = Path(path)
    if file.exists() and MARK not in file.read_text(encoding="utf-8", errors="replace"):
        return TopologyOptions(path, None, [])
    try:
        return TopologyOptions(path, topology_xml(profile), [])
    except NcclTopologyError as exc:
        text = f"is not on this host and cannot be made ({exc}); NCCL looks for itself"
        return TopologyOptions("", None, [ForeignFile("warn", path, text)])


def usable(variables: t.Mapping[str, t.Any], topology: TopologyOptions) -> tuple[dict[str, str], list[ForeignFile]]:
    """Leave out variables that are null, and files that do not exist, for which NCCL would end."""
    every = {**({"NCCL_TOPO_FILE": topology.path} if topology.path else {}), **variables}
    usable = {name: str(value) for name, value in every.items() if value is not None}
    findings = []
    for name in FILES:
        path = usable.get(name, "")
        if path and path != topology.path and not Path(path).is_file():
            findings.append(
                ForeignFile("warn", name, f"{usable.pop(name)} is not on this host; the variable is left out")
            )
    return usable, findings


def same_file(path: str, other: str) -> bool:
    """Compare by the real path: Azure's nccl.conf names a link to the file that the profile names."""
    return os.path.realpath(path) == os.path.realpath(other)


def wanted_files(
    params: t.Mapping[str, t.Any], topology: TopologyOptions, text: str | None, ours: t.Mapping[str, str]
) -> Text:
    """Return the content of each file that is wholly ours, None where it shall not exist."""
    values = effective(text or "")
    mounted = [path for path in (topology.path, *(values.get(name) for name in FILES)) if path]
    mounted += [PATH] if text else []
    mounts = (
        _HEAD + enroot_mounts(mounted) if params["containers"] and params["state"] == "present" and mounted else None
    )
    again = bool(ours) and unit_exists(IMAGE_UNIT)
    files: Text = {
        MOUNTS: mounts,
        COPY: block(ours) if again else None,
        DROPIN: _HEAD + dropin(COPY) if again else None,
    }
    return {**files, **({topology.path: topology.content} if topology.content else {})}


def perform(module: FileModule, params: t.Mapping[str, t.Any]) -> Json:
    """Return the result of the module."""
    present = params["state"] == "present"
    record = owned.load(params["record"])
    chosen = topology(params["topology_file"] if present else None, params["machine"])
    variables, findings = usable(params["variables"] if present else {}, chosen)
    file = Path(PATH)
    content = file.read_bytes() if file.is_file() else None
    before = None if content is None else decode(content)
    after, ours, remarks = merge(before, variables, same_file)
    if after != before and file.is_symlink():
        remarks, after, ours = [*remarks, _LINK], before, {}
    files = wanted_files(params, chosen, after, ours)
    gone: Text = {path: None for path in record.get("files", []) if path not in files}
    changes, foreign = owned.plan({**files, **gone})
    if after != before:
        changes.append(FileChange(PATH, content, after))
    record["files"] = [chosen.path] if chosen.content else []
    if not module.check_mode:
        _apply(module, changes, record, params["record"])
    every = chosen.findings + findings + (remarks if present else []) + foreign
    return {
        "changed": bool(changes),
        "findings": owned.facts(every),
        "files": [change.path for change in changes],
        "topology_file": chosen.path or None,
        "variables": effective(after or ""),
        "diff": owned.differences(changes),
    }


def _apply(module: FileModule, changes: t.Sequence[FileChange], record: Json, path: str) -> None:
    owned.note_directories(changes, record)
    owned.save(path, record)
    file = Path(PATH)
    mode = f"{file.stat().st_mode & 0o777:04o}" if file.exists() else "0644"
    owned.apply(module, changes, record, {PATH: mode})
    if any(change.path == DROPIN for change in changes):
        run(["systemctl", "daemon-reload"], 120)
    owned.save(path, record)
