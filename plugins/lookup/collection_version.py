# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of this collection's version, wherever it runs from."""

from __future__ import annotations

DOCUMENTATION = r"""
name: collection_version
short_description: Return the version of this collection
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns the version of the collection that is running, from C(MANIFEST.json) where it was installed, and from
    C(galaxy.yml) in a clone and in a bundle that was built from one.
options:
  _terms:
    description:
      - None.
seealso:
  - module: hpcai.gpu_cluster.node_image
"""

EXAMPLES = r"""
- name: Show which version runs
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.collection_version') }}"

- name: Refuse a version that is too old for this inventory
  ansible.builtin.assert:
    that: lookup('hpcai.gpu_cluster.collection_version') is version('0.1.0', '>=')
"""

RETURN = r"""
_raw:
  description:
    - The version, as one element.
  type: list
  elements: str
  sample: ["0.1.0"]
"""

import json
import typing as t
from pathlib import Path

from ansible.errors import AnsibleLookupError
from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.lookup import LookupBase

ROOT = Path(__file__).resolve().parents[2]


class LookupModule(LookupBase):
    """Returns one version."""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        if terms:
            raise AnsibleLookupError(f"collection_version takes no terms, got {terms!r}")
        return [version(ROOT)]


def version(root: Path) -> str:
    """Return the version of a collection from the file that has it; Ansible removes galaxy.yml where it installs."""
    try:
        installed, source = root / "MANIFEST.json", root / "galaxy.yml"
        if installed.is_file():
            return str(json.loads(installed.read_text(encoding="utf-8"))["collection_info"]["version"])
        return str(yaml_load(source.read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise AnsibleLookupError(f"{root} does not say which version of the collection it is: {exc!r}") from exc
