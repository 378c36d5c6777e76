#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_tools
short_description: Install azcopy and the program that uploads checkpoints
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Keeps azcopy in C(azcopy/VERSION-SHA12) below O(directory), where C(SHA12) are the first 12 digits of the archive's
    digest, and C(bin/azcopy) as a link to it.
  - >-
    The link moves only after the new azcopy has started and printed its version. Earlier ones stay for uploads that
    still run.
  - Then keeps O(files), which are the program C(checkpoint_upload) and its settings.
  - In check mode RV(needs_archive) tells whether O(archive) is needed.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  directory:
    description:
      - Directory of the tools, on a file system that the nodes share. It is made when missing.
      - All users run what is in it. So it, and each directory above it, has to belong to root or the user of the task,
        and nobody else may write to it; above it a directory may be sticky, as C(/tmp) is. The same is asked of the
        directories of O(files), whose owners are trusted as well. What somebody else made is refused.
    type: path
    required: true
  version:
    description:
      - Version of azcopy in full, such as V(10.32.2). It must be what C(azcopy --version) prints.
    type: str
    required: true
  sha256:
    description:
      - SHA-256 of the archive as 64 hexadecimal digits in lower case. An archive with another digest is refused.
    type: str
    required: true
  archive:
    description:
      - >-
        Archive on this host, a tar file with one azcopy for this machine in it. Needed unless that azcopy is in
        O(directory) already.
    type: path
  files:
    description:
      - >-
        Files and directories to keep, such as those that the lookup P(hpcai.gpu_cluster.node_program#lookup) returns.
        What is not listed stays as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - Path of the file. Directories above it are made when missing.
        type: path
        required: true
      content:
        description:
          - >-
            Text of the file. An entry without O(files[].content), O(files[].base64) and O(files[].secret) is a
            directory.
        type: str
      base64:
        description:
          - >-
            Content in base64, for a file that is not text. A diff shows digests. Takes precedence over
            O(files[].content).
        type: str
      secret:
        description:
          - >-
            Content in base64 that is neither logged nor shown in a diff. Takes precedence over O(files[].base64) and
            O(files[].content).
        type: str
      owner:
        description:
          - >-
            User and group of the file, both of this name. While the host lacks one of them, the owner is left as it is
            and a new file belongs to root.
        type: str
        default: root
      mode:
        description:
          - Octal mode as a quoted string. Without it V(0644) for files and V(0755) for directories.
        type: str
      diff:
        description:
          - Whether a diff shows the lines of the file. With V(false) it shows digests.
        type: bool
        default: true
notes:
  - Role P(hpcai.gpu_cluster.checkpoint_upload#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.checkpoint_upload
  - plugin: hpcai.gpu_cluster.node_program
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: See whether the archive of azcopy has to be fetched
  hpcai.gpu_cluster.checkpoint_tools:
    directory: /shared/checkpoint_upload
    version: 10.32.2
    sha256: 6a06ca202bc42caa32f732b7f37e419c8de897411119ee673f68ccc097dd7997
  check_mode: true
  become: true
  register: tools

- name: Install azcopy alone
  hpcai.gpu_cluster.checkpoint_tools:
    directory: /shared/checkpoint_upload
    version: 10.32.2
    sha256: 6a06ca202bc42caa32f732b7f37e419c8de897411119ee673f68ccc097dd7997
    archive: "{{ '/var/tmp/azcopy.tgz' if tools.needs_archive else omit }}"
  become: true

- name: Install azcopy with the settings and the credentials of one user
  hpcai.gpu_cluster.checkpoint_tools:
    directory: /shared/checkpoint_upload
    version: 10.32.2
    sha256: 6a06ca202bc42caa32f732b7f37e419c8de897411119ee673f68ccc097dd7997
    files:
      - path: /shared/checkpoint_upload/config.json
        content: "{{ settings | to_nice_json }}\n"
      - path: /shared/checkpoint_upload/credentials/trainer
        secret: "{{ vault_azcopy_credentials | b64encode }}"
        owner: trainer
        mode: "0600"
  become: true
"""

RETURN = r"""
azcopy:
  description:
    - Path of the link to azcopy.
  returned: success
  type: str
  sample: /shared/checkpoint_upload/bin/azcopy
needs_archive:
  description:
    - Whether that azcopy was not in O(directory) when the task began, so that O(archive) was or is needed.
  returned: success
  type: bool
  sample: false
"""

import contextlib
import pwd
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, keep_all
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import azcopy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

SPEC = {
    "directory": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "sha256": {"type": "str", "required": True},
    "archive": {"type": "path"},
    "files": {"type": "list", "elements": "dict", "options": _owned_files.SPEC, "default": []},
}


def refuse_others(entries: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Raise CheckpointError for files in directories that others than root and the files' owner could change."""
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):
            try:
                owner = [pwd.getpwnam(entry["owner"]).pw_uid]
            except KeyError:
                owner = []
            is_directory = not any(entry.get(key) is not None for key in ("content", "base64", "secret"))
            folder = entry["path"] if is_directory else str(Path(entry["path"]).parent)
            try:
                with _trusted.opened(folder, _trusted.trusted_users(*owner), for_entries=not is_directory):
                    pass
            except _trusted.TrustError as exc:
                raise CheckpointError(f"{entry['path']} is not written: {exc}") from exc


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Install azcopy where it is missing, and keep the files beside it."""
    params = module.params
    pin = azcopy.AzcopyPin(Path(params["directory"]), params["version"], params["sha256"])
    azcopy.check(pin)
    refuse_others(params["files"])
    present, used = azcopy.state(pin)
    if not module.check_mode and not used:
        if not present and not params["archive"]:
            raise CheckpointError(f"azcopy {pin.version} is not in {pin.directory}, and no archive is given")
        azcopy.install(pin, params["archive"] or "")
    changed, dummy, diffs = keep_all(module, params["files"])
    link = {"before_header": str(pin.link), "after_header": str(pin.link), "before": "", "after": pin.target}
    diffs += [] if used else [link]
    return {"changed": changed or not used, "azcopy": str(pin.link), "needs_archive": not present, "diff": diffs}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (CheckpointError, FileError, OSError) as exc:
        module.fail_json(msg=f"The tools for uploads are not installed: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
