#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_project
short_description: Have a cluster-init project in a locker, with a version that follows from its content
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs on the CycleCloud VM. Copies the project with its version set, and uploads it by the command line.
  - The same content is uploaded once. Another one has another version, so nodes that boot later never get it by the
    name of what others got.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  source:
    description: Directory with C(project.ini), C(specs) and C(blobs). The version in C(project.ini) is replaced.
    type: path
    required: true
  locker: {description: The locker., type: str, required: true}
"""
EXAMPLES = r"""
- name: Have the node's project in the locker
  hpcai.gpu_cluster.cyclecloud_project:
    source: /var/lib/hpcai/cyclecloud/project
    locker: azure-storage
"""
RETURN = r"""
project: {description: "C(name), C(spec), C(version) and C(digest).", type: dict, returned: success,
  sample: {name: hpcai-node, spec: node, version: 1.0.1234, digest: 0123abcd}}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import CLI_SPEC, Cli, CliError, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.project import Upload, collect


def bring(module: AnsibleModule) -> Json:
    params = module.params
    if module.check_mode and not Path(params["source"]).exists():
        # An earlier task of the play would have copied it.
        return {"changed": True, "project": {"name": "", "spec": "", "version": "1.0.0", "digest": ""}}
    project = collect(params["source"])
    upload = Upload(Cli(params), params["state_dir"], project, params["locker"])
    needed = upload.needed()
    if needed and not module.check_mode:
        upload.send()
    told = {"name": project.name, "spec": project.specs[0], "version": project.version, "digest": project.digest}
    diff = {"before": f"{project.name} {upload.before}\n", "after": f"{project.name} {project.version}\n"}
    return {"changed": needed, "project": told, "diff": diff}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "locker": {"type": "str", "required": True},
            **CLI_SPEC,
        },
        supports_check_mode=True,
    )
    try:
        result = bring(module)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"Project {module.params['source']} is not in locker {module.params['locker']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
