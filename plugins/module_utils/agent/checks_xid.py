# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's check of XID and SXid messages in the kernel log, and the action for each of them."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import node_access, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import xid as parser
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.xid import Event
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import address, bus_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import pci_gpus

# The action for each Xid: isolate, reboot, reset or monitor. Pure.


ACTIONS = ("monitor", "reset", "reboot", "isolate")


class XidRule(t.NamedTuple):
    """The action for a code, the class to blame, and what the code means."""

    action: str
    blame: str
    meaning: str


_ROWS: t.Sequence[tuple[str, str, str, str]] = (
    ("54", "isolate", "hardware", "auxiliary power is not connected"),
    ("64", "isolate", "hardware", "a row of memory could not be remapped, no spare is left"),
    ("79", "reboot", "hardware", "the GPU has fallen off the bus"),
    ("151", "reboot", "hardware", "key rotation error"),
    ("168", "reboot", "hardware", "errors in the protected part of memory"),
    ("46", "reset", "hardware", "the GPU stopped processing"),
    ("48", "reset", "hardware", "uncorrectable memory error"),
    ("57 58", "reset", "hardware", "memory interface error"),
    ("61 62 169", "reset", "hardware", "a microcontroller of the GPU halted"),
    ("74", "reset", "hardware", "NVLink error"),
    ("95", "reset", "hardware", "uncontained memory error"),
    ("109", "reset", "hardware", "context switch timeout"),
    ("110", "reset", "hardware", "security fault"),
    ("119", "reset", "hardware", "the GPU's system processor does not answer"),
    ("120", "reset", "hardware", "error in the GPU's system processor"),
    ("136", "reset", "hardware", "NVLink training failed"),
    ("140", "reset", "hardware", "unrecovered memory error"),
    ("143", "reset", "hardware", "the GPU could not be initialized"),
    ("149", "reset", "hardware", "NVLink is down"),
    ("155", "reset", "hardware", "NVLink went down as software defines it"),
    ("156", "reset", "hardware", "a resource of the GPU is being retired"),
    ("158", "reset", "hardware", "fatal timeout"),
    ("167", "reset", "hardware", "fatal PCIe timeout"),
    ("171 172", "reset", "hardware", "uncorrectable memory error, in detail"),
    ("63", "monitor", "hardware", "a row of memory is being remapped"),
    ("92", "monitor", "hardware", "many corrected memory errors"),
    ("94", "monitor", "hardware", "contained memory error; reset the GPU when convenient"),
    ("121", "monitor", "hardware", "corrected errors between GPU and CPU"),
    ("144 145 146 147 148 150", "monitor", "hardware", "NVLink event that is not fatal"),
    ("157 161", "monitor", "hardware", "a resource could not be retired"),
    ("160", "monitor", "hardware", "a memory channel is being retired"),
    ("162 163 164 165", "monitor", "hardware", "power smoothing"),
    ("81 93 122 123 124 125", "monitor", "hardware", "infoROM or display hardware"),
    ("13 25 31 32 43 45 60 66 67 69 80 137 141", "monitor", "software", "fault of an application"),
    ("8 11 39 40 41 68 70 71 72 75 76 77 82 83 84 85 86 88 89", "monitor", "software", "an engine raised an exception"),
    ("65 73 96 97 98 99 100 101 102 103 104 105 142 152 153", "monitor", "software", "video or image engine error"),
    ("126 127 128 129 130 131 132 133 134 135 139 159", "monitor", "software", "an engine raised an exception"),
    ("37 38 44 56 78 108 166 170", "monitor", "software", "firmware or driver event"),
    ("14 106 107", "monitor", "software", "test message"),
)
POLICY: dict[int, XidRule] = {
    int(code): XidRule(action, blame, meaning) for codes, action, blame, meaning in _ROWS for code in codes.split()
}
RECOVERY = 154
_UNKNOWN = XidRule("monitor", "hardware", "not in the catalogue of this agent")
_NVLINK5 = range(144, 151)
# The driver's own verdict. Its words have changed (Node Reboot Required, OS Reboot; GPU Reset Required, PF FLR).
_RECOVERY = re.compile(r"changed from 0x[0-9a-fA-F]{1,8} \([^)]*\) to (0x[0-9a-fA-F]{1,8}) \(([^)]*)\)")
_RECOVERY_NUMBERS = {1: "reset", 2: "reboot", 3: "reset", 4: "reset"}


def rule_of(event: Event) -> XidRule | None:
    """Return the rule for an event; None for the message that a GPU needs nothing any more."""
    if event.code is None:
        return XidRule("monitor", "software", "a message that cannot be read")
    if event.kind == "SXid":
        action = "reset" if event.fatal else "monitor"
        return XidRule(action, "hardware", f"{'fatal ' if event.fatal else ''}NVSwitch error")
    if event.code == RECOVERY:
        return _recovery(event.text)
    known = POLICY.get(event.code, _UNKNOWN)
    if event.code in _NVLINK5 and event.fatal is not None:
        # The same code has subcodes of both kinds, and the line says which.
        return known._replace(action="reset" if event.fatal else "monitor")
    return known


def _recovery(text: str) -> XidRule | None:
    match = _RECOVERY.search(text)
    if match is None:
        return XidRule("monitor", "hardware", "the driver's recovery action changed")
    number, words = int(match.group(1), 16), match.group(2)
    if number == 0:
        return None
    action = "reboot" if re.search("(?i)reboot", words) else _RECOVERY_NUMBERS.get(number, "monitor")
    if action == "monitor" and re.search("(?i)reset|FLR", words):
        action = "reset"
    return XidRule(action, "hardware", f"the driver asks for: {words}")


# The check of Xids in the kernel log. Private, stdlib only.


CHECK = "gpu_xid"
_MOST = 32
# Where NVIDIA's devices were on the PCI bus in this boot, as kept from run to run.
_SEEN = "nvidia_devices"
_MOST_SEEN = 256
_NVIDIA = "0x10de"
# A record of /dev/kmsg is at most as long, and the kernel refuses to give part of one.
_LONGEST = 16384
# CONFIG_LOG_BUF_SHIFT is at most 25: 32 MiB, which the escapes make longer.
_LARGEST = 128 << 20
_WORD = b"Xid"
_RECORD = re.compile(rb"\d{1,4},(\d{1,20}),\d{1,19},")
# The number of the last record that was seen in this boot. A user can have so much written that the oldest ones go.
_LAST = "kernel_log"
_UNSEEN = "records of the kernel's log were overwritten before they were read: an Xid among them was not seen"


class XidFault(t.NamedTuple):
    """All messages of one code about one GPU or NVSwitch."""

    rule: XidRule
    first: parser.Event
    last: parser.Event
    times: int


def xid(context: Context) -> list[Json]:
    """Judge what the driver wrote since the system started."""
    gpus = context.config.profile.get("gpu")
    if isinstance(gpus, dict) and gpus.get("count") == 0 and not pci_gpus(context.config.sysfs):
        return [report(context, CHECK, LimitFinding(verdict="skipped", reason="no GPU is expected"))]
    before = context.kept(_LAST)
    log = kernel_log(context.config.kernel_log, before if isinstance(before, int) and before >= 0 else None)
    context.keep(_LAST, log.last)
    events = parser.parse(log.lines, boot_time(context))
    indexes = {address(bus): index for index, bus in enumerate(pci_gpus(context.config.sysfs))}
    present = devices(context)
    every = [(_record(context, fault, indexes, present), fault.last.time) for fault in faults(events)]
    records = [record for record, last in every if not state.over(context.kept(state.FORGIVEN), record, last)]
    known = {(record["context"].get("code"), str(record["scope"])) for record in records}
    kept = [record for record in context.latched.values() if record["check"] == CHECK]
    records += [record for record in kept if (record["context"].get("code"), str(record["scope"])) not in known]
    if log.lost:
        records.append(
            report(context, CHECK, LimitFinding(verdict="error", reason=_UNSEEN, samples=[{"lost": log.lost}]))
        )
    return records or [report(context, CHECK, LimitFinding(verdict="pass"))]


def devices(context: Context) -> set[str]:
    """Return where NVIDIA's devices are on the PCI bus, and where they were in this boot: a GPU may leave the bus."""
    before = context.kept(_SEEN)
    seen = {place for place in before if isinstance(place, str)} if isinstance(before, list) else set()
    for path in node_access.listed(Path(context.config.sysfs, "bus/pci/devices")):
        place = address(path.name)
        if place and node_access.text(path / "vendor") == _NVIDIA:
            seen.add(_slot(bus_id(place)))
    context.keep(_SEEN, sorted(seen)[:_MOST_SEEN])
    return seen


def _slot(device: str) -> str:
    """Return an address without its function, which messages about GPUs leave out."""
    return device.rpartition(".")[0]


class KernelLog(t.NamedTuple):
    """The lines that may be the driver's, the number of the last record, and how many were overwritten unseen."""

    lines: list[str]
    last: int
    lost: int


def kernel_log(path: str, seen: int | None = None) -> KernelLog:
    """Read the log of the kernel, of which record ``seen`` is known; a log without any record cannot be read.

    Each read of /dev/kmsg gives one record, and an error for those that were overwritten before they were read.
    """
    lines: list[str] = []
    size, last, lost, torn, is_log = 0, seen, 0, True, False
    for data in _reads(path):
        size += len(data)
        if size > _LARGEST:
            raise BrokenError(f"{path} has more than {_LARGEST} bytes, which no kernel keeps")
        torn = torn or not data
        for line in data.split(b"\n"):
            match = _RECORD.match(line)
            if match:
                number = int(match.group(1))
                lost += number - last - 1 if torn and last is not None and number > last + 1 else 0
                last, torn, is_log = number if last is None else max(last, number), False, True
            if _WORD in line:
                lines.append(line.decode(errors="replace"))
    if last is None or not is_log:
        raise BrokenError(f"{path} holds no record of a kernel log, as /dev/kmsg does")
    return KernelLog(lines, last, lost)


def _reads(path: str) -> t.Iterator[bytes]:
    """Yield whole lines; nothing where records were overwritten."""
    rest = b""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                try:
                    data = os.read(file, _LONGEST)
                except BrokenPipeError:
                    yield b""
                    continue
                except BlockingIOError:
                    return
                if not data:
                    return
                whole, end, rest = (rest + data).rpartition(b"\n")
                if end:
                    yield whole
        finally:
            os.close(file)
    except OSError as exc:
        raise BrokenError(f"{path} cannot be read: {exc.strerror or exc}") from exc


def boot_time(context: Context) -> float | None:
    """Return when the system started, None where the kernel does not say."""
    lines = (node_access.text(Path(context.config.proc, "stat")) or "").splitlines()
    words = next((line.split() for line in lines if line.startswith("btime ")), [])
    return float(words[1]) if len(words) == 2 and words[1].isdigit() else None


def faults(events: t.Sequence[parser.Event]) -> list[XidFault]:
    """Return the faults, one for each code and device, the worst first."""
    known: dict[tuple[t.Any, ...], XidFault] = {}
    for event in events:
        rule = rule_of(event)
        if rule is None:
            continue
        key = (event.kind, event.code, event.bus_id)
        before = known.get(key)
        if before is None:
            known[key] = XidFault(rule, event, event, 1)
            continue
        worse = max(before.rule, rule, key=lambda candidate: ACTIONS.index(candidate.action))
        known[key] = XidFault(worse, before.first, event, before.times + 1)
    order = sorted(known.values(), key=lambda fault: -ACTIONS.index(fault.rule.action))
    return order[:_MOST]


def _record(context: Context, fault: XidFault, indexes: t.Mapping[t.Any, int], present: t.Container[str]) -> Json:
    """Return the record of a fault that the kernel reported; it is latched unless the rule is only to monitor it."""
    event, rule = fault.last, fault.rule
    if event.bus_id and _slot(event.bus_id) not in present:
        # Whoever wrote this, no part of this machine is to blame.
        rule = XidRule("monitor", "software", "no NVIDIA device of this machine has that PCI address")
    index = indexes.get(address(event.bus_id))
    scope: Json = {} if not event.bus_id else {"bus_id": event.bus_id} if index is None else {"gpu": [index]}
    where = f"GPU {index}" if index is not None else event.bus_id or "a device"
    code = event.code if event.kind == "Xid" else f"SXid {event.code}"
    name = f"{event.kind} {event.code}" if event.code is not None else event.kind
    times = f", {fault.times} times" if fault.times > 1 else ""
    sample = {"code": code, "bus_id": event.bus_id, "count": fault.times, "text": event.text}
    finding = LimitFinding(
        verdict="warn" if rule.action == "monitor" else "fail",
        reason=f"{name} on {where}{times}: {rule.meaning}",
        blame=rule.blame,
        scope=scope,
        samples=[{**sample, "first": fault.first.time, "last": event.time}],
        evidence=event.text,
        action=rule.action,
        latched=rule.action != "monitor",
        code=code,
    )
    return report(context, CHECK, finding)
