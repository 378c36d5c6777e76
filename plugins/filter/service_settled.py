# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that tells whether a service was seen to run with its current files."""

from __future__ import annotations

DOCUMENTATION = r"""
name: service_settled
short_description: Tell whether a service was seen to run with its current files
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Compares what M(hpcai.gpu_cluster.node_info) saw of a service with the files that it is to have. If it is true,
    M(hpcai.gpu_cluster.service_current) with these files would change nothing, and its task can be skipped.
  - What was not looked at, or not wholly seen, is not settled.
positional: name, files
options:
  _input:
    description:
      - Result of M(hpcai.gpu_cluster.node_info) with C(units). It can be empty.
    type: dict
    required: true
  name:
    description:
      - Name of the service, as both modules have it.
    type: str
    required: true
  files:
    description:
      - Files of the service, as C(files) of M(hpcai.gpu_cluster.service_current) takes them.
    type: list
    elements: dict
    required: true
seealso:
  - module: hpcai.gpu_cluster.node_info
  - module: hpcai.gpu_cluster.service_current
"""

EXAMPLES = r"""
- name: Look at the exporter and its unit
  hpcai.gpu_cluster.node_info:
    units:
      - {name: gpu-exporter, files: [/etc/systemd/system/gpu-exporter.service]}
  become: true
  register: seen

- name: Run the exporter where it does not run with this unit
  hpcai.gpu_cluster.service_current:
    name: gpu-exporter
    files: "{{ exporter_files }}"
  become: true
  when: not seen | hpcai.gpu_cluster.service_settled('gpu-exporter', exporter_files)
  vars:
    exporter_files:
      - path: /etc/systemd/system/gpu-exporter.service
        content: "{{ lookup('ansible.builtin.template', 'gpu-exporter.service.j2') }}"
"""

RETURN = r"""
_value:
  description:
    - Whether it runs with these files.
  type: bool
  sample: true
"""

import hashlib
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import wanted


def described(entry: t.Mapping[str, t.Any]) -> str:
    """Return what node_info tells of a file that is as an entry has it. Of a directory it tells nothing."""
    content, owner, mode = wanted(entry), entry.get("owner") or "root", entry.get("mode") or "0644"
    if content is None:
        return "a directory"
    return f"{owner}:{owner} {int(str(mode), 8):04o} {hashlib.sha256(content).hexdigest()}"


def service_settled(node: t.Any, name: str, files: t.Any) -> bool:
    """Compare the files with what was seen of them."""
    try:
        seen: dict[str, str] = (node.get("units") or {}).get(name) or {}
        return bool(seen) and all(described(entry) == seen.get(entry["path"]) for entry in files)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:  # a FileError is a ValueError
        raise AnsibleFilterError(f"service_settled takes what node_info returned, a name and files: {exc!r}") from exc


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"service_settled": service_settled}
