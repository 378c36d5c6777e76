#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_packages
short_description: Install Slurm's packages of a host in one version, without touching its daemons
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Takes the version that O(version) names from what is installed or what apt offers, and brings every installed
    package of Slurm to it, because they depend on each other. Packages of Debian and Ubuntu and those of SchedMD
    (C(slurm-smd)) are known.
  - No script of a package starts, stops or restarts a daemon meanwhile. Configuration files that were changed are kept.
  - >-
    Refuses to change packages under a running daemon unless O(under_daemons). A running Slurm is upgraded by the
    playbook C(upgrade_slurm.yml).
  - A dpkg that was interrupted is completed first. An apt that would remove packages of others is refused.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: Package lists are not fetched.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: O(state=downloaded) never reports a change.
options:
  packages:
    description:
      - >-
        Packages that must be installed. Without any, the programs of Slurm that are installed already, and then it is
        an error when there are none.
    type: list
    elements: str
    default: []
  version:
    description:
      - >-
        Version to have, as a release (V(26.05)), an upstream version (V(26.05.5)) or a whole package version
        (V(26.05.5-1)). It must not be empty.
      - >-
        What is installed and fits stays, so a release does not bring later updates of it. Otherwise it is the highest
        fitting version in which all O(packages) can be had, one that is installed already before others.
      - Quote a release, or YAML reads V(26.05) as a number.
    type: str
    required: true
  state:
    description:
      - >-
        V(planned) changes nothing but the package lists, and returns in RV(problem) what stands in the way instead of
        failing.
      - V(downloaded) fetches the packages into apt's cache.
      - V(present) installs them.
    type: str
    choices: [planned, downloaded, present]
    default: present
  may_go:
    description:
      - Packages that are not part of Slurm and that apt may remove all the same.
    type: list
    elements: str
    default: []
  under_daemons:
    description:
      - Change packages although a daemon of Slurm runs on the host. It keeps running the old program.
    type: bool
    default: false
  lists_max_age:
    description:
      - >-
        Where the installed packages do not fit, package lists that are older than this many seconds are fetched again.
        V(0) always fetches them and V(-1) never.
    type: int
    default: 86400
  timeout:
    description:
      - Seconds that one command of apt or dpkg may take.
    type: float
    default: 3600
notes:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls this module.
"""
EXAMPLES = r"""
- name: Install slurmd and the client commands of a release
  hpcai.gpu_cluster.slurm_packages:
    packages: [slurmd, slurm-client]
    version: "26.05"
  become: true

- name: Plan what an upgrade of this host would take
  hpcai.gpu_cluster.slurm_packages:
    version: 26.05.5-1
    state: planned
  become: true
  register: plan

- name: Download the packages before the maintenance
  hpcai.gpu_cluster.slurm_packages:
    version: 26.05.5-1
    state: downloaded
  become: true

- name: Replace the packages under the running slurmd, from what was downloaded
  hpcai.gpu_cluster.slurm_packages:
    version: 26.05.5-1
    under_daemons: true
    lists_max_age: -1
  become: true
"""
RETURN = r"""
version:
  description:
    - The whole package version that was chosen. Empty when O(state=planned) found none.
  returned: success
  type: str
  sample: 26.05.5-1
installed:
  description:
    - Slurm's packages that were installed before, with their versions.
  returned: success
  type: dict
  sample:
    slurm-client: 24.11.5-4
    slurmd: 24.11.5-4
install:
  description:
    - What apt installs or keeps, as C(NAME=VERSION).
  returned: success
  type: list
  elements: str
  sample: [slurm-client=26.05.5-1, slurmd=26.05.5-1]
moved:
  description:
    - >-
      All packages that are added or change, those of others included, with C(name), C(before) (empty for a new one) and
      C(after). Empty while a dpkg is interrupted and O(state) is not V(present).
  returned: success
  type: list
  elements: dict
  sample:
    - name: slurmd
      before: 24.11.5-4
      after: 26.05.5-1
removed:
  description:
    - Packages that apt removes.
  returned: success
  type: list
  elements: str
  sample: []
interrupted:
  description:
    - Whether a dpkg, or an earlier run of this module, had been interrupted.
  returned: success
  type: bool
  sample: false
problem:
  description:
    - What stands in the way with O(state=planned). Empty otherwise.
  returned: success
  type: str
  sample: ""
daemons:
  description:
    - >-
      C(slurmdbd), C(slurmctld) and C(slurmd) of this host as they were before. C(there) tells whether the unit is
      installed, C(active) whether it runs, and C(runs) the version of the running program, which may differ from the
      installed one and is empty when it does not run or cannot be told.
  returned: success
  type: dict
  sample:
    slurmd:
      there: true
      active: true
      runs: 24.11.5
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.packages import SPEC, PackageError, perform


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except PackageError as exc:
        module.fail_json(msg=f"Slurm's packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
