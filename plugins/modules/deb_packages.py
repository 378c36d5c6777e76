#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: deb_packages
short_description: Install Debian packages in exact versions, in one transaction
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Installs package files, or packages of the repositories of apt, in one transaction. A package that is installed in
    the requested version stays; a newer one is replaced by an older one when that is requested.
  - Packages that conflict with the requested ones are removed in the same transaction, and configuration files that an
    administrator changed stay.
  - A host that has the packages needs no files. In check mode RV(missing) tells which files it would need.
  - Checksums of files are compared before anything is installed.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  files:
    description:
      - Package files. Either they or O(names) are required, not both. Each needs O(files[].sha256), or O(files[].name)
        and O(files[].version).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Name of the package in the file.
        type: str
        default: ""
      version:
        description:
          - Version of the package in the file.
        type: str
        default: ""
      sha256:
        description:
          - SHA-256 digest of the file. Without a name, a package counts as installed when O(record) says that this file
            was installed and its version is still there.
        type: str
        default: ""
      path:
        description:
          - Path of the file on this host. Required when the package has to be installed.
        type: str
        default: ""
  names:
    description:
      - Packages of the repositories of apt, as C(name) or C(name=version). Any version satisfies C(name), but one that
        this collection built from source has to be replaced by C(name=version). Package lists are not fetched.
    type: list
    elements: str
    default: []
  record:
    description:
      - File on this host that keeps which package and version belong to the checksums that were installed.
    type: path
    default: /var/lib/hpcai/deb_packages.json
seealso:
  - module: ansible.builtin.apt
  - module: hpcai.gpu_cluster.enroot_package
  - module: hpcai.gpu_cluster.pyxis_package
"""

EXAMPLES = r"""
- name: Install two package files of one release
  hpcai.gpu_cluster.deb_packages:
    files:
      - sha256: "{{ enroot_sha256 }}"
        path: /var/tmp/enroot.deb
      - sha256: "{{ enroot_caps_sha256 }}"
        path: /var/tmp/enroot+caps.deb
  become: true

- name: Install a package that was built on another host
  hpcai.gpu_cluster.deb_packages:
    files:
      - name: nvslurm-plugin-pyxis
        version: 0.24.0+hpcai.3f1c52a09b7e
        path: /var/tmp/pyxis.deb
  become: true

- name: Read which files a host lacks
  hpcai.gpu_cluster.deb_packages:
    files:
      - sha256: "{{ enroot_sha256 }}"
  check_mode: true
  become: true
  register: lacking

- name: Install an exact version from a repository
  hpcai.gpu_cluster.deb_packages:
    names:
      - enroot=4.0.1-1
      - enroot+caps=4.0.1-1
  become: true
"""

RETURN = r"""
missing:
  description:
    - Files that are needed and have no O(files[].path), each as its checksum, or as C(name=version) without one.
  returned: success
  type: list
  elements: str
  sample: ["enroot=4.1.2+hpcai.3f1c52a09b7e"]
installed:
  description:
    - What was installed, or would be in check mode, as entries of O(names), or as checksums or C(name=version) of
      files.
  returned: success
  type: list
  elements: str
  sample: [9e491abd0827ea5c389dd702e15e11e13d83d904bac4a20d6c2a4cb37207a9af]
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import debian
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.debian import InstallError, PackageFile

FILE: dict[str, t.Any] = {key: {"type": "str", "default": ""} for key in PackageFile._fields}
SPEC: dict[str, t.Any] = {
    "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
    "names": {"type": "list", "elements": "str", "default": []},
    "record": {"type": "path", "default": "/var/lib/hpcai/deb_packages.json"},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    params, record = module.params, owned.load(module.params["record"])
    files = [PackageFile(**file) for file in params["files"]]
    debian.check(files, params["names"])
    todo = debian.lacking(files, record, debian.installed)
    packages = [*debian.absent(params["names"], debian.installed), *(file.label for file in todo)]
    result = {"missing": debian.without_path(todo), "installed": packages, "changed": bool(packages)}
    if packages and not module.check_mode:
        record.update(install(module, todo, packages))
    if not module.check_mode:
        owned.save(params["record"], debian.noted(record, debian.installed))
    return {**result, "diff": {"before": "", "after": "".join(f"{label}\n" for label in packages)}}


def install(module: AnsibleModule, todo: list[PackageFile], packages: list[str]) -> dict[str, dict[str, str]]:
    """Prove the files, install all in one go and look again; return what their checksums stand for."""
    missing = debian.without_path(todo)
    if missing:
        raise InstallError(f"no path of a file is given for {', '.join(missing)}")
    for file in todo:
        digest = sha256(file.path)
        if file.sha256 and digest != file.sha256:
            raise InstallError(f"{file.path} has the SHA-256 digest {digest}, not {file.sha256}: nothing was installed")
    is_what = {
        file.path: (debian.field(Path(file.path), "Package"), debian.field(Path(file.path), "Version")) for file in todo
    }
    argv = debian.command([file.path for file in todo] or packages)
    environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    rc, out, err = module.run_command(argv, environ_update=environment)
    if rc != 0:
        raise InstallError(f"{' '.join(argv)} ended with {rc}: {(err or out).strip()}")
    wrong = [f"{name} {version}" for name, version in is_what.values() if debian.installed(name) != version]
    if wrong:
        raise InstallError(f"apt ended well, but did not install {', '.join(wrong)}")
    return {file.sha256: dict(zip(("name", "version"), is_what[file.path])) for file in todo if file.sha256}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot install packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
