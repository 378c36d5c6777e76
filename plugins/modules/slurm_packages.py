#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_packages
short_description: Have Slurm's packages in one version, all of a host together, and leave its daemons alone
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Finds the version that O(version) names among what is installed and what apt's lists offer, and moves every
    installed package of Slurm to it, for they depend on each other. No script of a package starts or restarts a daemon.
  - Refuses to change packages under a running daemon unless O(under_daemons), which playbook upgrade_slurm.yml sets.
  - A dpkg that was killed half-way is brought to its end first.
  - Configuration files that were changed are kept.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  packages: {description: Packages that must be there; if none those that are., type: list, elements: str, default: []}
  version:
    description: A whole version (V(26.05.5-1)), its upstream part (V(26.05.5)) or its release (V(26.05)). What is
      installed and fits stays.
    type: str
    required: true
  state:
    description: V(planned) changes nothing and returns what stands in the way in RV(problem) instead of failing;
      V(downloaded) fetches the packages; V(present) installs them.
    type: str
    choices: [planned, downloaded, present]
    default: present
  may_go: {description: Packages not of Slurm that apt may remove., type: list, elements: str, default: []}
  under_daemons: {description: Change packages also where a daemon of Slurm runs., type: bool, default: false}
  lists_max_age:
    description: Where what is installed does not do, package lists older than this many seconds are fetched again;
      V(-1) never fetches them.
    type: int
    default: 86400
  timeout: {description: Seconds for one command of apt., type: float, default: 3600}
"""
EXAMPLES = r"""
- name: Have slurmd in this release
  hpcai.gpu_cluster.slurm_packages:
    packages: [slurmd, slurm-client]
    version: "26.05"
"""
RETURN = r"""
version: {description: The version that was found., type: str, returned: success, sample: 26.05.5-1}
installed: {description: Slurm's packages before., type: dict, returned: success, sample: {slurmd: 24.11.5-4}}
install: {description: What apt was told., type: list, elements: str, returned: success, sample: [slurmd=26.05.5-1]}
moved: {description: All packages that come or change., type: list, elements: dict, returned: success,
  sample: [{name: slurmd, before: 24.11.5-4, after: 26.05.5-1}]}
removed: {description: Packages that go., type: list, elements: str, returned: success, sample: []}
interrupted: {description: Whether a dpkg was killed half-way., type: bool, returned: success, sample: false}
problem: {description: What stands in the way., type: str, returned: success, sample: ""}
daemons:
  description: Slurm's daemons on this host, with the version that runs, which may be another than the installed one.
  type: dict
  returned: success
  sample: {slurmd: {there: true, active: true, runs: 24.11.5}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.apt import PackageError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.packages_task import SPEC, bring


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = bring(module.params, module.check_mode)
    except PackageError as exc:
        module.fail_json(msg=f"Slurm's packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
