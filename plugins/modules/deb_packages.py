#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: deb_packages
short_description: Install Debian packages of just these versions, from files or a repository, in one transaction
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Installs packages unless they are installed in just the version that is asked for, older ones too. Other packages
    that they conflict with are replaced in the same transaction; conffiles that were changed stay.
  - A host that has what is asked for needs no file. In check mode RV(missing) tells which files it would need.
  - Checksums are compared here, again, before anything is installed.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  files:
    description: Package files.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {type: str, default: "", description: "Name of the package, if it is known."}
      version: {type: str, default: "", description: "Its version, if it is known."}
      sha256: {type: str, default: "", description: "Checksum of the file; needed where name and version are unknown."}
      path: {type: str, default: "", description: The file on this host; needed when it has to be installed.}
  names:
    {type: list, elements: str, default: [], description: "Packages of apt's repositories, C(name) or C(name=version)."}
  record:
    {type: path, default: /var/lib/hpcai/deb_packages.json, description: What the checksums that were installed are.}
"""

EXAMPLES = r"""
- name: Install two packages of one release
  hpcai.gpu_cluster.deb_packages:
    files:
      - {sha256: "{{ enroot_sha256 }}", path: /var/tmp/enroot.deb}
      - {sha256: "{{ caps_sha256 }}", path: /var/tmp/enroot+caps.deb}
"""

RETURN = r"""
missing:
  description: Checksum, or name and version, of the files that are needed and not given.
  type: list
  elements: str
  returned: success
  sample: ["enroot=4.1.2+hpcai.3f1c52a09b7e"]
installed: {description: What was or would be installed., type: list, elements: str, returned: success}
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import deb, deb_install
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.deb_install import File, InstallError


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    params, record = module.params, owned.load(module.params["record"])
    files = [File(**one) for one in params["files"]]
    deb_install.check(files, params["names"])
    todo = deb_install.lacking(files, record, deb.installed)
    wanted = [*deb_install.absent(params["names"], deb.installed), *(one.label for one in todo)]
    result = {"missing": deb_install.without_path(todo), "installed": wanted, "changed": bool(wanted)}
    if wanted and not module.check_mode:
        record.update(install(module, todo, wanted))
    if not module.check_mode:
        owned.save(params["record"], deb_install.noted(record, deb.installed))
    return {**result, "diff": {"before": "", "after": "".join(f"{one}\n" for one in wanted)}}


def install(module: AnsibleModule, todo: list[File], wanted: list[str]) -> dict[str, dict[str, str]]:
    """Prove the files, install all in one go and look again; return what their checksums stand for."""
    missing = deb_install.without_path(todo)
    if missing:
        raise InstallError(f"no path of a file is given for {', '.join(missing)}")
    for one in todo:
        found = sha256(one.path)
        if one.sha256 and found != one.sha256:
            raise InstallError(f"{one.path} has the SHA-256 digest {found}, not {one.sha256}: nothing was installed")
    is_what = {one.path: (deb.field(Path(one.path), "Package"), deb.field(Path(one.path), "Version")) for one in todo}
    argv = deb_install.command([one.path for one in todo] or wanted)
    environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    rc, out, err = module.run_command(argv, environ_update=environment)
    if rc != 0:
        raise InstallError(f"{' '.join(argv)} ended with {rc}: {(err or out).strip()}")
    wrong = [f"{name} {version}" for name, version in is_what.values() if deb.installed(name) != version]
    if wrong:
        raise InstallError(f"apt ended well, but did not install {', '.join(wrong)}")
    return {one.sha256: dict(zip(("name", "version"), is_what[one.path])) for one in todo if one.sha256}


def main() -> None:
    entry = {key: {"type": "str", "default": ""} for key in File._fields}
    spec = {
        "files": {"type": "list", "elements": "dict", "default": [], "options": entry},
        "names": {"type": "list", "elements": "str", "default": []},
        "record": {"type": "path", "default": "/var/lib/hpcai/deb_packages.json"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = bring(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot install packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
