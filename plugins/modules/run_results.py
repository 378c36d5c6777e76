#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: run_results
short_description: Keep the run record and the report on a host of the cluster or in a blob, and fetch them from there
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - What a job of AWX writes is in its container and gone with it, and the next job may run on another machine. So
    each stage leaves its run record on a host of the cluster, and the stage that draws the report fetches it.
  - Records are merged by entry, on the host and under a lock, so that two jobs at once lose nothing. A newer entry
    for the same stage of the same run replaces the older one.
  - A container of Azure Blob Storage can keep them besides, or instead. It is reached from the machine that Ansible
    runs on, needs no host of the cluster, and is still there when the cluster is not. Records are merged there, too.
  - With O(state=kept) the result has the artifacts of the stages of this run as C(set_stats) would set them, one
    variable for each stage, C(hpcai_<stage>), with C(run), C(state), C(verdict), C(counts) and C(place). AWX gives
    them to the later jobs of a workflow as extra variables.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: Nothing is read from the host, and nothing is written anywhere.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: A record about the cluster is not part of its state, so keeping and fetching it never count as a change.
options:
  state:
    description:
      - V(kept) merges C(run.json) of O(report_dir) into that of O(dir), and copies the O(files).
      - V(fetched) merges the other way round. A host that has no record is no error.
    type: str
    choices: [kept, fetched]
    required: true
  dir:
    description:
      - Absolute path of the directory on the host. It is made when missing, with mode 0750, and nobody but root and
        the user of the task may be able to write to it or to what is above it.
      - Empty keeps and fetches nothing on the host.
    type: str
    default: ""
  blob:
    description:
      - Address of a container of Azure Blob Storage, with directories behind it where several clusters share one, for
        example C(https://account.blob.core.windows.net/results/train). The container has to exist.
      - The identity is that of the variables C(AZURE_*), as for the modules of Azure here; it needs the role
        C(Storage Blob Data Contributor) on the container. Keys of the account are not used. Where Ansible runs,
        C(azure-identity) and C(azure-mgmt-core) have to be installed.
      - With O(dir) as well, both places have their turn where one of them cannot be reached; the task fails in the end.
    type: str
    default: ""
  report_dir:
    description:
      - Directory of C(run.json) on the machine that Ansible runs on, as the lookup
        P(hpcai.gpu_cluster.report_dir#lookup) returns it.
    type: path
    required: true
  files:
    description:
      - Names of files in O(report_dir) that are copied too with O(state=kept), for example C(report.html). Those that
        are not there are left out.
    type: list
    elements: str
    default: []
  runs:
    description:
      - Number of runs that a record keeps. Older ones are dropped.
    type: int
    default: 10
  sent:
    description:
      - Paths on the host to which the files were sent, by their names. The action fills it; what a task says is
        replaced.
    type: dict
    default: {}
seealso:
  - plugin: hpcai.gpu_cluster.run_record
    plugin_type: callback
  - plugin: hpcai.gpu_cluster.report_dir
    plugin_type: lookup
  - module: hpcai.gpu_cluster.report
"""

EXAMPLES = r"""
- name: Keep the record of this run on the controller
  hpcai.gpu_cluster.run_results:
    state: kept
    dir: /var/lib/hpcai/results
    report_dir: "{{ lookup('hpcai.gpu_cluster.report_dir') }}"
  become: true

- name: Keep the report beside it
  hpcai.gpu_cluster.run_results:
    state: kept
    dir: /var/lib/hpcai/results
    report_dir: reports
    files: [report.html, report.xml]
  become: true

- name: Keep the record in a container, from where any job of any inventory fetches it
  hpcai.gpu_cluster.run_results:
    state: kept
    blob: https://account.blob.core.windows.net/results/train
    report_dir: reports
    files: [report.html]

- name: Fetch what other jobs recorded
  hpcai.gpu_cluster.run_results:
    state: fetched
    dir: /var/lib/hpcai/results
    report_dir: reports
  become: true
"""

RETURN = r"""
place:
  description:
    - Host and directory, as scp takes them, or the container's address where O(dir) is empty.
  returned: success
  type: str
  sample: ctl:/var/lib/hpcai/results
stages:
  description:
    - Stages that the record has after it, run and stage of each, the oldest first.
  returned: success
  type: list
  elements: str
  sample: [awx-41 configure, awx-41 certify]
files:
  description:
    - Names of the files that were copied, C(run.json) among them.
  returned: success
  type: list
  elements: str
  sample: [run.json, report.html]
"""

import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, load, store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    Directory,
    File,
    TrustError,
    have,
    have_file,
    trusted_users,
)

RECORD = "run.json"
SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["kept", "fetched"], "required": True},
    "dir": {"type": "str", "default": ""},
    "blob": {"type": "str", "default": ""},
    "report_dir": {"type": "path", "required": True},
    "files": {"type": "list", "elements": "str", "default": []},
    "runs": {"type": "int", "default": 10},
    "sent": {"type": "dict", "default": {}},
}


def keep(folder: str, sent: t.Mapping[str, str], runs: int) -> dict[str, t.Any]:
    """Merge the record that was sent, put the other files beside it, and return the record."""
    uid, gid = os.geteuid(), os.getegid()
    have(Directory(folder, uid, gid, 0o750), trusted_users())
    for name, path in sent.items():
        if name != RECORD:
            have_file(File(f"{folder}/{name}", Path(path).read_bytes(), uid, gid, 0o640), trusted_users())
    return store(Path(folder, RECORD), load(Path(sent[RECORD])), runs)


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Keep what was sent, or fetch the record."""
    folder, sent, record = params["dir"], params["sent"], {}
    if not check_mode and params["state"] == "kept" and RECORD in sent:
        record = keep(folder, sent, params["runs"])
    elif not check_mode and params["state"] == "fetched":
        record = load(Path(folder, RECORD))
    # The action takes the record out of the result.
    fetched = {"record": record} if params["state"] == "fetched" else {}
    stages = [f"{stage.get('run')} {stage.get('stage')}" for stage in record.get("stages") or []]
    return {"stages": stages, "files": sorted(sent), **fetched}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (TrustError, RecordError, OSError) as exc:
        verb = "keep results in" if module.params["state"] == "kept" else "fetch results from"
        module.fail_json(msg=f"Cannot {verb} {module.params['dir']} on {os.uname().nodename}: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
