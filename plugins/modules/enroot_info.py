#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether a host's enroot can be used, and where it keeps images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_info
short_description: Read whether a host has enroot, and whether it keeps images on scratch
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Reads an enroot that something else installed and configured, such as CycleCloud's Slurm project, which puts its
    directories on C(/nvme) where that is mounted when Slurm is installed, else on C(/mnt), else on C(/tmp).
  - It reads C(enroot.conf) alone, whose values win over those of C(enroot.conf.d).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  conf:
    description:
      - Configuration of enroot.
    type: path
    default: /etc/enroot/enroot.conf
  scratch:
    description:
      - >-
        Directory on the node's fast disks. Cache, containers and temporary files have to be on the same file system.
        Empty does not compare.
    type: str
    default: ""
  must_fit:
    description:
      - Fail when there are findings.
    type: bool
    default: false
seealso:
  - module: hpcai.gpu_cluster.enroot_config
  - module: hpcai.gpu_cluster.pyxis_info
"""

EXAMPLES = r"""
- name: Read which enroot this host has
  hpcai.gpu_cluster.enroot_info:
  register: enroot

- name: Refuse an enroot that keeps images elsewhere than on NVMe disks
  hpcai.gpu_cluster.enroot_info:
    scratch: /mnt/resource_nvme
    must_fit: true

- name: Read another configuration
  hpcai.gpu_cluster.enroot_info:
    conf: /opt/site/etc/enroot/enroot.conf
"""

RETURN = r"""
version:
  description:
    - What C(enroot version) prints. Empty where it is not installed.
  returned: success, and when O(must_fit) fails
  type: str
  sample: 4.0.1
paths:
  description:
    - Directories by the setting that names them, as far as they are the same for all users.
  returned: success, and when O(must_fit) fails
  type: dict
  sample: {ENROOT_CACHE_PATH: /nvme/enroot/enroot-cache}
findings:
  description:
    - What keeps jobs from running containers here, or from doing so on scratch.
  returned: success, and when O(must_fit) fails
  type: list
  elements: str
  sample: ["ENROOT_DATA_PATH is /tmp/enroot/enroot-data, which is not on the disks of /mnt/resource_nvme"]
"""

import re
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

SPEC = {
    "conf": {"type": "path", "default": "/etc/enroot/enroot.conf"},
    "scratch": {"type": "str", "default": ""},
    "must_fit": {"type": "bool", "default": False},
}

# What can be large: layers of images, containers, and what is made while an image is imported.
LARGE = ("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH")
_LINE = re.compile(r"\s*([A-Z_]+)[ \t=]+(\S.*?)\s*")


class EnrootHost(t.NamedTuple):
    """An installed enroot; ``devices`` are the file systems of its directories by setting, None for one not there."""

    version: str
    paths: t.Mapping[str, str]
    devices: t.Mapping[str, int | None]


def paths(text: str) -> dict[str, str]:
    """Return the directories of enroot.conf, as far as they are the same for every user; the first value counts."""
    named: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and match[1] in LARGE:
            named.setdefault(match[1], _common(match[2].strip("\"'")))
    return named


def _common(value: str) -> str:
    """Return the directory above the first name with an expression of the shell: /a for ``/a/user-$(id -u)``."""
    plain = re.split(r"[$`]", value)[0]
    return plain.rstrip("/") if plain == value or plain.endswith("/") else plain.rpartition("/")[0]


def observe(conf: Path, version: str) -> EnrootHost:
    """Read the configuration; without one enroot keeps everything in home directories."""
    named = paths(conf.read_text(encoding="utf-8")) if conf.is_file() else {}
    return EnrootHost(version, named, {name: device(path) for name, path in named.items()})


def device(path: str) -> int | None:
    """Return the number of the device that an absolute path lies on, or None where there is no such path."""
    try:
        return Path(path).stat().st_dev if path.startswith("/") else None
    except OSError:
        return None


def judge(host: EnrootHost, scratch: str, scratch_device: int | None) -> list[str]:
    """Return what keeps jobs from running containers here, or from doing so on scratch."""
    if not host.version:
        return ["enroot is not installed, or 'enroot version' fails"]
    findings = [f"enroot.conf sets no {name}, so it is in home directories" for name in LARGE if name not in host.paths]
    for name, path in host.paths.items():
        if host.devices[name] is None:
            findings.append(f"{name} is {path!r}, which is not there")
        elif scratch and scratch_device is None:
            findings.append(f"scratch is {scratch}, which is not there")
            break
        elif scratch and host.devices[name] != scratch_device:
            findings.append(f"{name} is {path}, which is not on the disks of {scratch}")
    return findings


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Read what enroot is here and where it keeps what it unpacks, and judge it."""
    program = module.get_bin_path("enroot")
    version = ""
    if program:
        status, out, dummy = module.run_command([program, "version"])
        version = "" if status else out.strip()
    host = observe(Path(module.params["conf"]), version)
    scratch = module.params["scratch"]
    findings = judge(host, scratch, device(scratch))
    return {"version": version, "paths": dict(host.paths), "findings": findings}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    result = perform(module)
    if result["findings"] and module.params["must_fit"]:
        module.fail_json(msg=f"This host's enroot does not do: {'; '.join(result['findings'])}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
