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
  - >-
    Adds what is missing and modifies what differs, by C(sacctmgr). Nothing is ever removed, so what administrators
    added by hand stays.
  - >-
    Runs on the host of C(slurmdbd) and needs no C(slurm.conf) there, so that a cluster can be added before its
    C(slurmctld) starts.
  - >-
    The cluster and the QOS are brought to what is wanted side by side, then accounts (parents first), then users.
    Users that are to become the same are added by one call, up to 100 at once. A step that fails ends the task; what
    was done before it stays.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: A C(slurmdbd) that does not answer counts as an empty database.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  cluster:
    description:
      - Name of the cluster (C(ClusterName)). Slurm stores it in lower case.
    type: str
    required: true
  qos:
    description:
      - >-
        Quality-of-service classes, each with C(name), and optionally C(description) and C(settings). Slurm stores
        names in lower case.
      - >-
        C(settings) are fields of C(sacctmgr), such as C(MaxWall) or C(Priority), that C(sacctmgr show qos) prints by
        the same name. A list is joined by commas, and V(-1) removes a limit.
    type: list
    elements: dict
    default: []
  accounts:
    description:
      - >-
        Accounts, each with C(name), and optionally C(description), C(organization), C(parent) and C(settings). Slurm
        stores names in lower case.
      - C(parent) is another account, listed here or in the database. Without it a new account is below C(root), and an
        account that is there stays where it is.
      - >-
        C(settings) are fields of the account's association with the cluster, such as C(qos), C(fairshare) or
        C(GrpTRES).
    type: list
    elements: dict
    default: []
  users:
    description:
      - >-
        Users, each with C(name) and C(account), and optionally C(default), C(adminlevel) and C(settings). A user of
        several accounts is listed once for each.
      - >-
        C(default=true) makes the account the default of the user. For a user who is not in the database yet it is the
        default in any case.
      - C(adminlevel) is C(None), C(Operator) or C(Administrator). C(settings) are fields of the user's association.
    type: list
    elements: dict
    default: []
  port:
    description:
      - Port of C(slurmdbd) on this host.
    type: int
    default: 6819
  timeout:
    description:
      - >-
        Seconds to wait until C(slurmdbd) answers the first query, and at most for each query and each change. In check
        mode it is not waited for.
    type: int
    default: 60
notes:
  - Needs administrator rights in the database, usually root or the Slurm user.
  - >-
    Values are compared by meaning, so that V(1:00:00) and V(01:00:00), or V(a=1,b=2) and V(b=2,a=1), are the same.
    Quote times, or YAML turns some of them into numbers.
"""
EXAMPLES = r"""
- name: Add a cluster before its controller starts
  hpcai.gpu_cluster.slurm_accounting:
    cluster: lab
  become: true

- name: Let a user run jobs of up to a week
  hpcai.gpu_cluster.slurm_accounting:
    cluster: lab
    qos:
      - name: long
        description: up to a week
        settings:
          MaxWall: "7-00:00:00"
    accounts:
      - name: research
        organization: ai
        settings:
          qos: [normal, long]
    users:
      - name: trainer
        account: research
  become: true

- name: Limit a team to 64 GPUs below its department
  hpcai.gpu_cluster.slurm_accounting:
    cluster: lab
    accounts:
      - name: department
      - name: team-vision
        parent: department
        settings:
          GrpTRES: gres/gpu=64
          fairshare: 20
  become: true

- name: Make an operator whose default account is another one
  hpcai.gpu_cluster.slurm_accounting:
    cluster: lab
    users:
      - name: anna
        account: department
        default: true
        adminlevel: Operator
      - name: anna
        account: team-vision
  become: true
"""
RETURN = r"""
steps:
  description:
    - What was changed, or would be in check mode, one sentence for each call of C(sacctmgr). Empty when all was there.
  returned: success
  type: list
  elements: str
  sample:
    - add cluster lab
    - add qos long
    - add account research
    - add user trainer to account research
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import accounting

ITEMS: dict[str, t.Any] = {"type": "list", "elements": "dict", "default": []}
SPEC: dict[str, t.Any] = {
    "cluster": {"type": "str", "required": True},
    "qos": ITEMS,
    "accounts": ITEMS,
    "users": ITEMS,
    "port": {"type": "int", "default": 6819},
    "timeout": {"type": "int", "default": 60},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Read the database, plan, and carry out the plan."""
    request = accounting.accounting_request(module.params)
    sacctmgr = module.get_bin_path("sacctmgr", required=not module.check_mode) or "sacctmgr"
    with accounting.client(request.cluster, module.params["port"], module.tmpdir) as env:
        observed = accounting.read(sacctmgr, env, request, module.params["timeout"], forgiving=module.check_mode)
        steps = accounting.plan(request, observed)
        if not module.check_mode:
            accounting.carry_out(sacctmgr, env, steps, module.params["timeout"])
    done = [step.text for step in steps]
    diff = {"before": "", "after": "".join(f"{text}\n" for text in done)}
    return {"changed": bool(done), "steps": done, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except accounting.AccountingError as exc:
        module.fail_json(msg=f"The accounting database is not as requested: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
