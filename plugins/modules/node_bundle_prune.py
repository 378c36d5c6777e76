#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_bundle_prune
short_description: Remove bundles that no node can ask for any more
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Of the bundles in a directory (M(hpcai.gpu_cluster.node_bundle)) the current one stays, the O(keep) before
    it, all that user-data names, and all that were replaced less than O(seconds) ago, for nodes that boot right now
    were told of one of these. Other files are left alone.
  - An older bundle that is the current one again gets a new time, so that the order stays true.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  path: {type: path, required: true, description: The directory.}
  current: {type: str, required: true, description: File name of the bundle that nodes get today.}
  keep: {type: int, default: 3, description: How many before it stay.}
  seconds:
    type: int
    default: 86400
    description: How long one stays after another took its place. Longer than a node may take to boot.
  user_data: {type: list, elements: path, default: [], description: Files that name bundles. Patterns are allowed.}
"""

EXAMPLES = r"""
- name: Remove old bundles
  hpcai.gpu_cluster.node_bundle_prune:
    path: /shared/hpcai/node
    current: "{{ node_bundle_result['name'] }}"
    user_data: [/etc/hpcai/power/user-data-*]
"""

RETURN = r"""
removed: {type: list, elements: str, returned: success, description: "What went, in check mode what would."}
kept: {type: list, elements: str, returned: success, description: What stays.}
"""

import glob
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import prune


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "current": {"type": "str", "required": True},
            "keep": {"type": "int", "default": 3},
            "seconds": {"type": "int", "default": 86400},
            "user_data": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        files = [Path(name) for pattern in params["user_data"] for name in glob.glob(pattern)]  # noqa: PTH207
        wish = prune.Wish(params["current"], params["keep"], params["seconds"], prune.named(files))
        changed, gone, kept = prune.bring(Path(params["path"]), wish, time.time(), module.check_mode)
    except OSError as exc:
        module.fail_json(msg=f"Bundles in {params['path']} cannot be removed: {exc}")
    diff = {
        "before": "".join(f"{one}\n" for one in sorted([*kept, *gone])),
        "after": "".join(f"{one}\n" for one in kept),
    }
    module.exit_json(changed=changed, removed=gone, kept=kept, diff=diff)


if __name__ == "__main__":
    main()
