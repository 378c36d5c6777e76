#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_project
short_description: Upload a cluster-init project whose version follows from its content
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs as root on the CycleCloud VM, with the login of the command line there.
  - It copies the project below O(state_dir), sets its version, and uploads it.
  - The same content is uploaded to a locker once. Other content has another version, so that nodes which boot later
    never get different files under a name that others have used.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
attributes:
  check_mode:
    support: full
    details: Where O(source) does not exist yet, an upload is reported and RV(project) has no name.
  diff_mode:
    support: full
    details: Shows the versions.
  idempotent:
    support: full
options:
  source:
    description:
      - Directory with C(project.ini), C(specs) and C(blobs), of which nothing else is uploaded. At least one spec has
        to have the directory C(cluster-init/scripts). Names of project and specs are lowercase letters, digits and
        dashes.
      - The version in C(project.ini) does not matter, it is replaced.
    type: path
    required: true
  locker:
    description:
      - Name of the locker.
    type: str
    required: true
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_cluster
    description: Takes the result as its option C(project).
"""
EXAMPLES = r"""
- name: Upload the project with which nodes configure themselves
  hpcai.gpu_cluster.cyclecloud_project:
    source: /var/lib/hpcai/cyclecloud/source/hpcai-node
    locker: azure-storage
  become: true
  register: uploaded

- name: Show the version that new nodes will get
  ansible.builtin.debug:
    msg: "{{ uploaded.project.name }} {{ uploaded.project.version }}"

- name: Upload a project of your own to another locker
  hpcai.gpu_cluster.cyclecloud_project:
    source: /srv/projects/licence-client
    locker: gov-storage
  become: true
"""
RETURN = r"""
project:
  description:
    - The project.
  returned: success
  type: dict
  contains:
    name:
      description:
        - Name of the project, from C(project.ini).
      returned: always
      type: str
      sample: hpcai-node
    spec:
      description:
        - Name of its spec, the first in the alphabet when there are several.
      returned: always
      type: str
      sample: node
    version:
      description:
        - Version, C(1.) and two numbers of 31 bits made of the digest.
      returned: always
      type: str
      sample: 1.741242052.1283174829
    digest:
      description:
        - SHA-256 digest of C(project.ini) without its version and of all files that are uploaded.
      returned: always
      type: str
      sample: 2c1d3a7f9bde2f6c7b1f0a9a4c8e5d6f0123456789abcdef0123456789abcdef
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.project import ProjectUpload, collect
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    CLI_SPEC,
    Cli,
    CliError,
    alone,
)

SPEC: dict[str, t.Any] = {
    "source": {"type": "path", "required": True},
    "locker": {"type": "str", "required": True},
    **CLI_SPEC,
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Upload a project to the locker, where the server has another content of that name."""
    with alone(params["state_dir"], check_mode):
        if check_mode and not Path(params["source"]).exists():
            # An earlier task of the play would have copied it.
            return {"changed": True, "project": {"name": "", "spec": "", "version": "1.0.0", "digest": ""}}
        project = collect(params["source"])
        upload = ProjectUpload(Cli(params), params["state_dir"], project, params["locker"])
        needed = upload.needed()
        if needed and not check_mode:
            upload.send()
        result = {"name": project.name, "spec": project.specs[0], "version": project.version, "digest": project.digest}
        diff = {"before": f"{project.name} {upload.before}\n", "after": f"{project.name} {project.version}\n"}
        return {"changed": needed, "project": result, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"Project {module.params['source']} is not in locker {module.params['locker']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
