#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep clusters, accounts, users and QOS in Slurm's accounting database."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounting
short_description: Keep a cluster, its QOS, accounts and users in Slurm's accounting database
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Adds what is missing and modifies what differs, by C(sacctmgr). Never removes anything.
  - Runs on the host of slurmdbd and needs no slurm.conf there, so a cluster can be added before its slurmctld starts.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  cluster: {description: Name of the cluster., type: str, required: true}
  qos:
    description: QOS, each with C(name), and optionally C(description) and C(settings), sacctmgr's own names and values.
    type: list
    elements: dict
    default: []
  accounts:
    description: Accounts, each with C(name), and optionally C(description), C(organization), C(parent) and C(settings).
    type: list
    elements: dict
    default: []
  users:
    description:
      - Users, each with C(name) and C(account), and optionally C(default) (this account is the user's default),
        C(adminlevel) and C(settings). A user of several accounts is listed once for each.
    type: list
    elements: dict
    default: []
  port: {description: Port of slurmdbd on this host., type: int, default: 6819}
  timeout: {description: Seconds to wait for slurmdbd to answer., type: int, default: 60}
"""
EXAMPLES = r"""
- name: Let a user work
  hpcai.gpu_cluster.slurm_accounting:
    cluster: lab
    qos: [{name: long, settings: {MaxWall: 7-00:00:00}}]
    accounts: [{name: research, settings: {qos: [normal, long]}}]
    users: [{name: trainer, account: research}]
"""
RETURN = r"""
steps: {description: What was done., type: list, elements: str, returned: success, sample: [add cluster lab]}
"""

import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import accounting as acct
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.accounting_client import read

CONF = """ClusterName={cluster}
SlurmctldHost=localhost
AccountingStorageType=accounting_storage/slurmdbd
AccountingStoragePort={port}
"""


def main() -> None:
    items = {"type": "list", "elements": "dict", "default": []}
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "qos": items,
            "accounts": items,
            "users": items,
            "port": {"type": "int", "default": 6819},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    wanted = acct.Wanted(*(module.params[key] for key in ("cluster", "qos", "accounts", "users")))
    sacctmgr = module.get_bin_path("sacctmgr", required=not module.check_mode) or "sacctmgr"
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as place:
        conf = Path(place) / "slurm.conf"
        conf.write_text(CONF.format(**module.params), encoding="utf-8")
        env = {"SLURM_CONF": str(conf)}
        try:
            now = read(sacctmgr, env, wanted, module.params["timeout"], forgiving=module.check_mode)
            steps = acct.plan(wanted, now)
        except acct.AccountingError as exc:
            module.fail_json(msg=f"Cannot plan the accounting database: {exc}")
        for step in [] if module.check_mode else steps:
            argv = [sacctmgr, "-i", "-Q", *step.argv]
            rc, out, err = module.run_command(argv, environ_update=env)
            if rc:
                module.fail_json(msg=f"Cannot {step.text}: {' '.join(argv)} said: {err.strip() or out.strip()}")
    done = [step.text for step in steps]
    module.exit_json(changed=bool(steps), steps=done, diff={"before": "", "after": "".join(f"{x}\n" for x in done)})


if __name__ == "__main__":
    main()
