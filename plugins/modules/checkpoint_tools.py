#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_tools
short_description: Have azcopy and the program that uploads checkpoints
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps azcopy in a directory named after its version and digest, and C(bin/azcopy) pointing to it. The link moves
    only after the new one has started and said its version; earlier ones stay for uploads that run.
  - In check mode the answer is whether O(archive) is needed.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  directory: {description: "Where all of it is, on a directory that the nodes share.", type: path, required: true}
  version: {description: Version of azcopy., type: str, required: true}
  sha256: {description: Digest of the archive., type: str, required: true}
  archive: {description: Archive on this host; needed unless that azcopy is there., type: path}
  files:
    description: Files of the program, as the lookup P(hpcai.gpu_cluster.node_program#lookup) returns them, and others.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: The file; directories above it are made., type: path, required: true}
      content: {description: What it holds. A file with neither this nor a secret is a directory., type: str}
      base64: {description: "What it holds, in base64, for what is no text; a diff shows digests.", type: str}
      secret: {description: "What it holds, in base64; never shown.", type: str}
      owner: {description: Its user and group., type: str, default: root}
      mode: {description: By default 0644 for files and 0755 for directories., type: str}
      diff: {description: Whether a diff shows its lines; otherwise it shows digests., type: bool, default: true}
"""

EXAMPLES = r"""
- name: Have azcopy and the program
  hpcai.gpu_cluster.checkpoint_tools:
    directory: /shared/checkpoint_upload
    version: 10.32.2
    sha256: 6a06ca202bc42caa32f732b7f37e419c8de897411119ee673f68ccc097dd7997
    archive: /var/tmp/azcopy.tgz
"""

RETURN = r"""
azcopy: {description: The program., returned: always, type: str, sample: /shared/checkpoint_upload/bin/azcopy}
needs_archive: {description: Whether O(archive) is needed., returned: always, type: bool, sample: false}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import SPEC, FileError, keep_all
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import install
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "archive": {"type": "path"},
            "files": {"type": "list", "elements": "dict", "options": SPEC, "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    wanted = install.Wanted(Path(params["directory"]), params["version"], params["sha256"])
    try:
        install.check(wanted)
        there, used = install.state(wanted)
        if not module.check_mode and not used:
            if not there and not params["archive"]:
                raise CheckpointError(f"azcopy {wanted.version} is not in {wanted.directory}, and no archive is given")
            install.install(wanted, params["archive"] or "")
        changed, dummy, diffs = keep_all(module, params["files"])
    except (CheckpointError, FileError, OSError) as exc:
        module.fail_json(msg=f"The tools for uploads are not installed: {exc}")
    link = {"before_header": str(wanted.link), "after_header": str(wanted.link), "before": "", "after": wanted.target}
    diffs += [] if used else [link]
    module.exit_json(changed=changed or not used, azcopy=str(wanted.link), needs_archive=not there, diff=diffs)


if __name__ == "__main__":
    main()
