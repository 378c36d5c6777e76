#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether the Slurm of a host loads its pyxis."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pyxis_info
short_description: Tell for which Slurm a host's pyxis was built, and whether the Slurm there loads it
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - The answer is read out of the plugin itself, from the symbol that Slurm compares, not taken from a package's name.
  - The plugin is the one that O(drop_in) names. Without a drop-in Slurm uses none, and nothing is wrong.
  - With O(must_fit) a plugin that Slurm would not load is an error, so that no daemon is started with it.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  drop_in:
    description: File below Slurm's C(plugstack.conf) that names the plugin.
    type: path
    default: /etc/slurm/plugstack.conf.d/pyxis.conf
  plugin: {type: path, description: "Look at this plugin instead, used or not."}
  package: {type: path, description: "Look at the plugin in this package instead, which is not installed."}
  must_fit: {type: bool, default: false, description: Fail if Slurm would not load the plugin.}
  ask: {type: bool, default: true, description: Ask the daemons that run for their versions.}
  slurm_home: {type: str, default: "", description: Directory of a Slurm that did not come as packages.}
"""

EXAMPLES = r"""
- name: Refuse to start slurmd with a pyxis of another Slurm
  hpcai.gpu_cluster.pyxis_info:
    must_fit: true
    ask: false
"""

RETURN = r"""
plugin: {description: Its path; empty where there is none., type: str, returned: success}
options: {description: What the drop-in gives it., type: list, elements: str, returned: success}
package: {description: Version of the package that is installed., type: str, returned: success}
versions:
  description: Versions of Slurm, empty where unknown. C(plugin) is the one that the plugin was built for.
  type: dict
  returned: success
  sample: {plugin: 24.11.5, slurmd: 24.11.5, client: 24.11.5, running: 24.11.5, controller: 24.11.5}
fits: {description: "Whether Slurm loads the plugin, also true where there is none.", type: bool, returned: success}
problems: {description: "Why not, for people.", type: list, elements: str, returned: success}
remarks: {description: What else does not agree., type: list, elements: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_look


def main() -> None:
    module = AnsibleModule(argument_spec=pyxis_look.SPEC, supports_check_mode=True)
    try:
        result = pyxis_look.look(module.params)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"pyxis: {exc}")
    if module.params["must_fit"] and not result["fits"]:
        module.fail_json(msg=f"pyxis: {'; '.join(result['problems'])}", **{**result, "changed": False})
    for text in result["remarks"]:
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
