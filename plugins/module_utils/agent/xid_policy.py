# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each Xid asks for: isolate, reboot, reset or monitor. Pure, private.

Sources: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, r590: the column of immediate actions; Volta and
older from its archive), the severities of aws-samples/awsome-distributed-training
2.gpu-cluster-healthcheck/checks/0-nvidia-smi-check.sh (7217859) and Azure/cyclecloud-healthagent
healthagent/defaults.yaml (b8c76db), which differ on few. RESTART_APP and IGNORE are to monitor: the fault is in the
job. Xid 64 isolates: no spare row is left, which is a reason to replace the GPU (NVIDIA GPU memory error management).
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.xid import Event

ACTIONS = ("monitor", "reset", "reboot", "isolate")


class Rule(t.NamedTuple):
    """What to do, who is to blame, and what the code means."""

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
POLICY: dict[int, Rule] = {
    int(code): Rule(action, blame, meaning) for codes, action, blame, meaning in _ROWS for code in codes.split()
}
RECOVERY = 154
_UNKNOWN = Rule("monitor", "hardware", "not in the catalogue of this agent")
_NVLINK5 = range(144, 151)
# The driver's own verdict. Its words have changed (Node Reboot Required, OS Reboot; GPU Reset Required, PF FLR).
_RECOVERY = re.compile(r"changed from 0x[0-9a-fA-F]{1,8} \([^)]*\) to (0x[0-9a-fA-F]{1,8}) \(([^)]*)\)")
_RECOVERY_NUMBERS = {1: "reset", 2: "reboot", 3: "reset", 4: "reset"}


def rule(event: Event) -> Rule | None:
    """Return what an event asks for; None for the news that a GPU needs nothing any more."""
    if event.code is None:
        return Rule("monitor", "software", "a message that cannot be read")
    if event.kind == "SXid":
        action = "reset" if event.fatal else "monitor"
        return Rule(action, "hardware", f"{'fatal ' if event.fatal else ''}NVSwitch error")
    if event.code == RECOVERY:
        return _recovery(event.text)
    known = POLICY.get(event.code, _UNKNOWN)
    if event.code in _NVLINK5 and event.fatal is not None:
        # The same code has subcodes of both kinds, and the line says which.
        return known._replace(action="reset" if event.fatal else "monitor")
    return known


def _recovery(text: str) -> Rule | None:
    match = _RECOVERY.search(text)
    if match is None:
        return Rule("monitor", "hardware", "the driver's recovery action changed")
    number, words = int(match.group(1), 16), match.group(2)
    if number == 0:
        return None
    action = "reboot" if re.search("(?i)reboot", words) else _RECOVERY_NUMBERS.get(number, "monitor")
    if action == "monitor" and re.search("(?i)reset|FLR", words):
        action = "reset"
    return Rule(action, "hardware", f"the driver asks for: {words}")
