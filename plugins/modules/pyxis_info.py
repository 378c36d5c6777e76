#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether the Slurm of a host loads its pyxis."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pyxis_info
short_description: Read for which Slurm a host's pyxis was built, and whether Slurm loads it
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Reads the release of Slurm that a pyxis plugin was built for out of the plugin itself, from the symbol that Slurm
    compares, and compares it with the installed C(slurmd) and client commands.
  - >-
    Slurm loads a plugin of its own release only. With a plugin of another release in C(plugstack.conf), no job step
    starts on the host, with or without containers.
  - >-
    The plugin is the one that O(drop_in) names. Without a drop-in Slurm uses none, and RV(fits) is V(true). What else
    does not agree, such as a C(slurmd) that was not restarted after an upgrade, is a warning.
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
  drop_in:
    description:
      - File below Slurm's C(plugstack.conf) that names the plugin and its options.
    type: path
    default: /etc/slurm/plugstack.conf.d/pyxis.conf
  plugin:
    description:
      - Read this plugin instead, whether or not Slurm uses it.
    type: path
  package:
    description:
      - Read the plugin inside this Debian package, which need not be installed. Takes precedence over O(plugin).
    type: path
  must_fit:
    description:
      - Fail when RV(fits) is V(false), so that no daemon is started with a plugin that it does not load.
    type: bool
    default: false
  ask:
    description:
      - >-
        Query the running C(slurmd) and C(slurmctld) for their versions with C(scontrol). Where one does not answer,
        that takes up to 20 seconds for each; V(false) avoids it.
    type: bool
    default: true
  slurm_home:
    description:
      - >-
        Directory of a Slurm that did not come as packages, with C(bin) and C(sbin), such as V(/opt/slurm). Empty for
        the commands on E(PATH).
    type: str
    default: ''
notes:
  - Role P(hpcai.gpu_cluster.pyxis#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.pyxis_package
"""

EXAMPLES = r"""
- name: Read which pyxis this host has
  hpcai.gpu_cluster.pyxis_info:
  register: pyxis

- name: Refuse to start slurmd with a pyxis of another Slurm
  hpcai.gpu_cluster.pyxis_info:
    must_fit: true
    ask: false

- name: Refuse a package whose plugin the Slurm here would not load
  hpcai.gpu_cluster.pyxis_info:
    package: /var/tmp/nvslurm-plugin-pyxis_0.24.0_amd64.deb
    must_fit: true
    ask: false

- name: Read the plugin of a Slurm below /opt
  hpcai.gpu_cluster.pyxis_info:
    drop_in: /opt/slurm/etc/plugstack.conf.d/pyxis.conf
    slurm_home: /opt/slurm
"""

RETURN = r"""
plugin:
  description:
    - Path of the plugin, or of the package with O(package). Empty where there is no readable one.
  returned: success, and when O(must_fit) fails
  type: str
  sample: /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so
options:
  description:
    - Options that O(drop_in) gives to the plugin.
  returned: success, and when O(must_fit) fails
  type: list
  elements: str
  sample: [runtime_path=/run/pyxis]
package:
  description:
    - Version of the installed package C(nvslurm-plugin-pyxis). Empty where it is not installed.
  returned: success, and when O(must_fit) fails
  type: str
  sample: 0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e
versions:
  description:
    - Versions of Slurm. Each is empty where it is not known, and all are where no plugin is named.
  returned: success, and when O(must_fit) fails
  type: dict
  contains:
    plugin:
      description:
        - The Slurm that the plugin was built for.
      returned: always
      type: str
      sample: 24.11.5
    slurmd:
      description:
        - The installed C(slurmd).
      returned: always
      type: str
      sample: 24.11.5
    client:
      description:
        - The installed client commands.
      returned: always
      type: str
      sample: 24.11.5
    running:
      description:
        - The C(slurmd) that runs on this host. Empty with O(ask=false).
      returned: always
      type: str
      sample: 24.11.5
    controller:
      description:
        - The C(slurmctld) of the cluster. Empty with O(ask=false).
      returned: always
      type: str
      sample: 24.11.5
fits:
  description:
    - Whether Slurm loads the plugin. V(true) also where there is none to load.
  returned: success, and when O(must_fit) fails
  type: bool
  sample: true
problems:
  description:
    - Why Slurm would not load the plugin, one sentence each. Empty when RV(fits) is V(true).
  returned: success, and when O(must_fit) fails
  type: list
  elements: str
  sample: []
remarks:
  description:
    - What else does not agree but does not keep Slurm from loading the plugin. Each is a warning of the task too.
  returned: success, and when O(must_fit) fails
  type: list
  elements: str
  sample:
    - "Slurm here is 25.05.3, slurmctld is 24.11.5: slurmctld has to be upgraded first (playbook upgrade_slurm.yml)"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_package


def main() -> None:
    module = AnsibleModule(argument_spec=pyxis_package.INFO_SPEC, supports_check_mode=True)
    try:
        result = pyxis_package.look(module.params)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"pyxis: {exc}")
    if module.params["must_fit"] and not result["fits"]:
        module.fail_json(msg=f"pyxis: {'; '.join(result['problems'])}", **{**result, "changed": False})
    for text in result["remarks"]:
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
