# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether KVM works on this machine: found out by booting a kernel with it. Private."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.argv import ACCELERATION, QEMU

# What the initial RAM disk says before it switches the machine off (files/make_boot_files.sh).
MARK = "hpcai: this accelerator boots"
# KVM needs one second. A host that only pretends to have it hangs, or emulates slower than QEMU does.
LIMIT = 10.0


class Answer(t.NamedTuple):
    """The accelerator to use, and why."""

    accelerator: str
    reason: str


def choose(image: Path, memory: Path) -> Answer:
    """Tell which accelerator boots here; an answer for the same image, kernel and processor is remembered."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Answer("tcg", "/dev/kvm is not there or not ours to use")
    key = identity(image)
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(memory.read_text())
        if found.get("for") == key:
            return Answer(str(found["accelerator"]), f"{found['reason']} (found out earlier)")
    if not (image / "vmlinuz").exists():
        return Answer("tcg", f"not known yet: there is no image {image}")
    answer = _try(image)
    memory.write_text(json.dumps({"for": key, **answer._asdict()}, indent=1) + "\n")
    return answer


def probe(image: Path) -> list[str]:
    """The command that boots a kernel under KVM and ends."""
    return [
        *[QEMU, *ACCELERATION["kvm"], "-machine", "q35", "-m", "256", "-nodefaults", "-display", "none"],
        *["-no-reboot", "-serial", "stdio", "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd")],
        *["-append", "console=ttyS0 quiet panic=-1 hpcai.probe"],
    ]


def identity(image: Path) -> str:
    """Everything that the answer depends on."""
    processor = ""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name.*|^flags.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        processor = found[0] if found else ""
    text = "\n".join([image.name, platform.release(), platform.version(), processor, *probe(image)])
    return hashlib.sha256(text.encode()).hexdigest()


def _try(image: Path) -> Answer:
    done = run(probe(image), LIMIT)
    if MARK in done.out:
        return Answer("kvm", f"a kernel booted under KVM in {done.seconds:.1f} s")
    return Answer("tcg", f"no kernel boots under KVM here ({done.problem or 'it ended without a word'})")
