#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report_checks
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Add check records to the run record that the report is drawn from
description:
  - >-
    Writes a stage with its check records into C(run.json), as the callback P(hpcai.gpu_cluster.run_record#callback)
    does for plays with C(run_stage). It is for plays that must end in a report where nothing is configured, and for
    records that were changed after a module returned them. A play that uses it sets no C(run_stage), or its records
    would be there twice.
  - The file is replaced in one step, and runs that are in it already stay.
  - Everything happens on the machine that Ansible runs on, whichever host the task is for.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It returns what it would write, and writes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: A record about the cluster is not part of its state, so writing it never counts as a change.
options:
  dir:
    description:
      - >-
        Directory of C(run.json). It is made when missing. A relative path starts at the current directory.
    type: path
    required: true
  stage:
    description:
      - Name of the stage, such as V(measure).
    type: str
    required: true
  checks:
    description:
      - >-
        Check records as the modules that measure return them. Each needs at least C(check) and C(verdict), and C(node)
        unless it is about several nodes. A record of the same node, check, scope and collective in the same run is
        replaced.
    type: list
    elements: dict
    required: true
  hosts:
    description:
      - Names of the hosts that belong to the stage.
    type: list
    elements: str
    default: []
  failures:
    description:
      - >-
        Why hosts failed or were not reached, by their names. With any, the stage counts as failed. A host without a
        record in O(checks) gets one that is V(error), under the name of the stage.
    type: dict
    default: {}
  cluster:
    description:
      - Name of the cluster that the report is about. Without it that of the run record stays.
    type: str
  sku:
    description:
      - Machine type that the report shows. Without it that of the run record stays.
    type: str
  run:
    description:
      - Name of the run. Stages of one name are one run. By default it is the time of the first record.
    type: str
  keep:
    description:
      - Number of runs that C(run.json) keeps. Older ones are dropped.
    type: int
    default: 10
  bad:
    description:
      - Verdicts of the records that RV(bad) names.
    type: list
    elements: str
    default: [fail, error]
seealso:
  - module: hpcai.gpu_cluster.report
  - plugin: hpcai.gpu_cluster.run_record
    plugin_type: callback
"""

EXAMPLES = r"""
- name: Measure the GPUs of a node
  hpcai.gpu_cluster.gpu_bandwidth:
    name: "{{ inventory_hostname }}"
  register: bandwidth

- name: Keep the record of one node
  hpcai.gpu_cluster.report_checks:
    dir: reports
    stage: measure
    checks: "{{ bandwidth.checks }}"
    hosts: ["{{ inventory_hostname }}"]

- name: Keep the records of all hosts of the play, and those that were not reached
  hpcai.gpu_cluster.report_checks:
    dir: reports
    stage: measure
    checks: "{{ ansible_play_hosts | map('extract', hostvars, ['bandwidth', 'checks']) | flatten(1) }}"
    hosts: "{{ ansible_play_hosts_all }}"
    failures: "{{ dict(ansible_play_hosts_all | difference(ansible_play_hosts) | product(['not reached'])) }}"
  run_once: true

- name: Stop where a check failed or did not work
  ansible.builtin.assert:
    that: kept.bad | length == 0
    fail_msg: "{{ kept.bad | join('; ') }}"
"""

RETURN = r"""
path:
  description: Path of the run record.
  returned: success
  type: str
  sample: reports/run.json
run:
  description: Name of the run.
  returned: success
  type: str
  sample: 20261105T190320Z
verdicts:
  description: Number of records by verdict.
  returned: success
  type: dict
  sample: {pass: 12, fail: 1, skipped: 2}
lines:
  description: One line for each record, with the node, the verdict, the lowest and highest values, and the reason.
  returned: success
  type: list
  elements: str
  sample: ["gpu-002 gpu_bandwidth: pass; h2d 25.6 to 26.1 GB/s, d2h 24.8 to 25.3 GB/s, d2d 1210 to 1215 GB/s"]
bad:
  description: Those lines whose records have one of the verdicts of O(bad).
  returned: success
  type: list
  elements: str
  sample: ["gpu-002 gpu_bandwidth: fail; h2d 12.4 to 26.1 GB/s; h2d (gpu=5): 12.4 GB/s, expected > 20"]
"""
