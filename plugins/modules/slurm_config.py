#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write Slurm's configuration files, all or none."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_config
short_description: Write Slurm's configuration files after checking them
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes slurm.conf and the files beside it, or none of them if a check fails; the daemons never see a bad file.
  - Two checks are made. This collection's own reads structure, node and partition references and the shape of plugin
    names. Then a Slurm command reads the files from a private directory, which finds unknown keys and bad values.
    No Slurm release can test the meaning of a whole configuration without starting the daemon.
  - Keeps a digest of what the daemons only read when they start in O(digest_file), for
    M(hpcai.gpu_cluster.service_current) to tell a restart from a reconfigure.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  path: {description: Directory of the files., type: path, default: /etc/slurm}
  files: {description: File names and contents; must hold slurm.conf., type: dict, required: true}
  digest_file: {description: Name of the digest's file in O(path)., type: str, default: restart.digest}
"""
EXAMPLES = r"""
- name: Write slurm.conf
  hpcai.gpu_cluster.slurm_config:
    files:
      slurm.conf: "{{ lookup('ansible.builtin.template', 'slurm.conf.j2') }}"
"""
RETURN = r"""
written: {description: The files that differed., type: list, elements: str, returned: success, sample: [slurm.conf]}
digest: {description: Changes when daemons must restart., type: str, returned: success, sample: 0a1b2c3d4e5f6071}
"""

import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._slurm_conf import digest, problems


def parse_with_slurm(module: AnsibleModule, files: t.Mapping[str, str]) -> list[str]:
    """Let a Slurm command read the files: ``sinfo --version`` reads slurm.conf before it looks at its options."""
    sinfo = module.get_bin_path("sinfo")
    if not sinfo:
        return []
    stage = Path(tempfile.mkdtemp(dir=module.tmpdir))
    for name, text in files.items():
        (stage / name).write_text(text, encoding="utf-8")
    env = {"SLURM_CONF": str(stage / "slurm.conf")}
    rc, out, err = module.run_command([sinfo, "--version"], environ_update=env)
    shutil.rmtree(stage, ignore_errors=True)
    said = [line for line in (out + err).splitlines() if "error:" in line or "fatal:" in line]
    return said or ([f"sinfo ended with {rc}"] if rc else [])


def write(module: AnsibleModule, target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, delete=False, encoding="utf-8") as handle:
        handle.write(text)
    Path(handle.name).chmod(0o644)
    module.atomic_move(handle.name, str(target))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/slurm"},
            "files": {"type": "dict", "required": True},
            "digest_file": {"type": "str", "default": "restart.digest"},
        },
        supports_check_mode=True,
    )
    base, files = Path(module.params["path"]), dict(module.params["files"])
    if "slurm.conf" not in files:
        module.fail_json(msg="files must hold slurm.conf")
    mark = digest(files)
    wanted = {**files, module.params["digest_file"]: f"{mark}\n"}
    before = {name: (base / name).read_text(encoding="utf-8") if (base / name).exists() else "" for name in wanted}
    differs = [name for name, text in wanted.items() if before[name] != text]
    if differs:
        wrong = problems(files["slurm.conf"]) or parse_with_slurm(module, files)
        if wrong:
            module.fail_json(msg=f"Refusing to write {base}/slurm.conf: {'; '.join(wrong)}", problems=wrong)
        if not module.check_mode:
            for name in differs:
                write(module, base / name, wanted[name])
    diff = [
        {"before_header": str(base / n), "after_header": str(base / n), "before": before[n], "after": wanted[n]}
        for n in differs
    ]
    module.exit_json(changed=bool(differs), written=differs, digest=mark, diff=diff)


if __name__ == "__main__":
    main()
