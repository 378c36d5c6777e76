#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_bundle_prune
short_description: Remove node bundles that no node can request any more
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Removes old bundles of M(hpcai.gpu_cluster.node_bundle) from a directory. It keeps the current one, the O(keep)
    before it, all that user-data names, and all that were replaced less than O(seconds) ago, since nodes that boot at
    this moment may still need one of these. Other files are left alone.
  - If the current bundle is older than another one, because a site went back to it, its modification time is set to
    now, so that the order stays right.
  - If the current bundle is not in the directory, nothing is removed.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description:
      - Directory with the bundles. If it does not exist, nothing is removed.
    type: path
    required: true
  current:
    description:
      - File name of the bundle that new nodes get, such as RV(hpcai.gpu_cluster.node_bundle#module:name).
    type: str
    required: true
  keep:
    description:
      - Number of bundles before the current one that are kept in any case.
    type: int
    default: 3
  seconds:
    description:
      - Seconds that a bundle is kept after another one replaced it. It must be longer than a node takes to boot.
    type: int
    default: 86400
  user_data:
    description:
      - Files whose text names bundles, which are kept. Patterns such as V(/etc/hpcai/power/user-data-*) are expanded.
        Files that do not exist are ignored.
    type: list
    elements: path
    default: []
seealso:
  - module: hpcai.gpu_cluster.node_bundle
"""

EXAMPLES = r"""
- name: Remove old bundles from the shared directory
  hpcai.gpu_cluster.node_bundle_prune:
    path: /shared/hpcai/node
    current: "{{ node_bundle_result['name'] }}"
    user_data: [/etc/hpcai/power/user-data-*]
  become: true

- name: Show which bundles would be removed if only one old bundle were kept for an hour
  hpcai.gpu_cluster.node_bundle_prune:
    path: /shared/hpcai/node
    current: hpcai-node-3f1c52a09b7e.tar.gz
    keep: 1
    seconds: 3600
  check_mode: true

- name: Keep five old bundles, each for at least a week after another one replaced it
  hpcai.gpu_cluster.node_bundle_prune:
    path: /shared/hpcai/node
    current: hpcai-node-3f1c52a09b7e.tar.gz
    keep: 5
    seconds: 604800
  become: true
"""

RETURN = r"""
removed:
  description: File names of the bundles that were removed, or in check mode would be.
  type: list
  elements: str
  returned: success
  sample: [hpcai-node-0a1b2c3d4e5f.tar.gz]
kept:
  description: File names of the bundles that are kept.
  type: list
  elements: str
  returned: success
  sample: [hpcai-node-3f1c52a09b7e.tar.gz]
"""

import glob
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import bundle

SPEC = {
    "path": {"type": "path", "required": True},
    "current": {"type": "str", "required": True},
    "keep": {"type": "int", "default": 3},
    "seconds": {"type": "int", "default": 86400},
    "user_data": {"type": "list", "elements": "path", "default": []},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Remove the bundles that nobody needs any more."""
    files = [Path(name) for pattern in params["user_data"] for name in glob.glob(pattern)]  # noqa: PTH207
    request = bundle.PruneRequest(params["current"], params["keep"], params["seconds"], bundle.named(files))
    changed, removed, kept = bundle.prune(Path(params["path"]), request, time.time(), check_mode)
    diff = {
        "before": "".join(f"{name}\n" for name in sorted([*kept, *removed])),
        "after": "".join(f"{name}\n" for name in kept),
    }
    return {"changed": changed, "removed": removed, "kept": kept, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except OSError as exc:
        module.fail_json(msg=f"Bundles in {module.params['path']} cannot be removed: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
