#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database_start
short_description: Start an upgraded slurmdbd and follow it while it converts its database
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - A conversion may take hours, in which slurmdbd does not answer and must not be killed. This returns after O(wait)
    with what its log says, and is called again until RV(done).
  - A slurmdbd that ends meanwhile is not started again; the module fails with what it said and with O(way_back).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  version: {description: "Version that has to run, without Debian's revision.", type: str, required: true}
  wait: {description: Seconds to wait this time., type: float, default: 60}
  way_back: {description: What the message of a failure ends with., type: str, default: ""}
  config: {description: Configuration of slurmdbd., type: path, default: /etc/slurm/slurmdbd.conf}
"""
EXAMPLES = r"""
- name: Start the new slurmdbd
  hpcai.gpu_cluster.slurm_database_start:
    version: 26.05.5
"""
RETURN = r"""
done: {description: Whether it answers., type: bool, returned: success, sample: true}
seconds: {description: How long this call waited., type: float, returned: success, sample: 3.1}
progress: {description: The last lines of its log., type: list, elements: str, returned: success,
  sample: ["[2026-01-05T10:00:05] pre-converting job table for lab"]}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.start_host import Starter, StartError


def main() -> None:
    spec: dict[str, t.Any] = {
        "version": {"type": "str", "required": True},
        "wait": {"type": "float", "default": 60},
        "way_back": {"type": "str", "default": ""},
        "config": {"type": "path", "default": "/etc/slurm/slurmdbd.conf"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    result: dict[str, t.Any] = {"done": True, "seconds": 0.0, "progress": []}
    try:
        worker = Starter(module.params)
        word = worker.needed()
        if not module.check_mode:
            result = worker.run(word)
    except (StartError, OSError) as exc:
        module.fail_json(msg=f"{str(exc).rstrip('.')}. {module.params['way_back']}".strip())
    module.exit_json(changed=bool(word), **result)


if __name__ == "__main__":
    main()
