#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_upgrade_trial
short_description: Let a Slurm that is not installed yet read this host's configuration
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Downloads the packages, unpacks them to a temporary directory, and has their C(sinfo) read a copy of the
    configuration with their plugins. A setting that the new release dropped shows before the old C(slurmctld) is
    stopped.
  - Nothing is installed, and all files are removed afterwards. The task does not fail for RV(problems) or RV(lost).
  - >-
    Slurm has no daemon that tests a configuration without starting, so a well-formed but wrong value can still show
    only then.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It changes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  packages:
    description:
      - >-
        Packages as C(apt-get download) takes them, such as V(slurmctld=26.05.5-1). The package with C(sinfo) and the
        one with Slurm's plugins must be among them.
    type: list
    elements: str
    required: true
  config:
    description:
      - Directory of C(slurm.conf). It is copied without C(slurmdbd.conf).
    type: path
    default: /etc/slurm
  timeout:
    description:
      - Seconds for the download, and for unpacking each package.
    type: float
    default: 600
notes:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls this module.
  - Needs room for the unpacked packages in C(/var/tmp).
seealso:
  - module: hpcai.gpu_cluster.slurm_packages
"""
EXAMPLES = r"""
- name: Plan the upgrade of this host
  hpcai.gpu_cluster.slurm_packages:
    version: 26.05.5-1
    state: planned
  become: true
  register: plan

- name: Let the new release read the configuration
  hpcai.gpu_cluster.slurm_upgrade_trial:
    packages: "{{ plan.install }}"
  become: true
  register: trial

- name: Refuse a release that would not take the configuration
  ansible.builtin.assert:
    that: trial.problems | length == 0
    fail_msg: "{{ trial.problems | join('; ') }}"

- name: Let the new release read a configuration in another directory
  hpcai.gpu_cluster.slurm_upgrade_trial:
    packages: [slurm-client=26.05.5-1, slurm-wlm-basic-plugins=26.05.5-1, slurmctld=26.05.5-1]
    config: /srv/slurm/etc
    timeout: 1800
  become: true
"""
RETURN = r"""
problems:
  description:
    - What the new release would not take, which are messages of its C(sinfo) and settings whose plugin it lacks.
  returned: success
  type: list
  elements: str
  sample: ["selecttype=select/cons_res: the new packages hold no plugin select_cons_res.so"]
lost:
  description:
    - Plugins that are installed on this host and that the new packages lack, by the names of their files.
  returned: success
  type: list
  elements: str
  sample: [mpi_pmix]
"""

import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state

SPEC = {
    "packages": {"type": "list", "elements": "str", "required": True},
    "config": {"type": "path", "default": "/etc/slurm"},
    "timeout": {"type": "float", "default": 600},
}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Unpack the new release aside, and have it read the configuration."""
    config = Path(params["config"])
    stage = Path(tempfile.mkdtemp(prefix="hpcai-slurm-trial-", dir="/var/tmp"))
    try:
        there = state.unpack(params["packages"], stage, params["timeout"])
        names = {path.stem for path in there.glob("*.so")}
        problems = state.read(config, stage, there)
        problems += state.lacking(state.plugins((config / "slurm.conf").read_text()), names)
        here = Path("/", *there.relative_to(stage / "root").parts)
        return {"problems": problems, "lost": state.lost_plugins((path.stem for path in here.glob("*.so")), names)}
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params)
    except (state.TrialError, OSError) as exc:
        module.fail_json(msg=f"The new release cannot be tried: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
