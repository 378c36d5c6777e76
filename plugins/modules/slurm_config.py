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
  - Of slurm.conf, this collection reads structure, references between nodes and partitions and the shape of plugin
    names; then C(sinfo), if it is installed, reads it from a private directory and finds unknown keys and bad values.
  - Of gres.conf and topology.conf, this collection reads structure, lists, and whether nodes and switches exist; of
    cgroup.conf only that each line is C(Name=value). No Slurm command reads these three before slurmd starts.
  - No Slurm release can test the meaning of a whole configuration without starting the daemon.
  - A change of StateSaveLocation that would leave the state of jobs behind is refused, and so is a plugstack.conf that
    would lose plugins that somebody else put there.
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
written: {description: The files that differed., type: list, elements: str, returned: success, sample: [/etc/slurm/x]}
digest: {description: Changes when daemons must restart., type: str, returned: success, sample: 0a1b2c3d4e5f6071}
"""

import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import conf_change as change
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import problems, problems_beside


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


def state_written(place: str) -> float:
    state = Path(place) / "job_state"
    return state.stat().st_mtime if state.exists() else 0.0


def refuse(module: AnsibleModule, now: t.Mapping[str, str], files: t.Mapping[str, str]) -> None:
    """Fail if these files must not be written."""
    wrong = problems(files["slurm.conf"]) or problems_beside(files) or parse_with_slurm(module, files)
    cold = change.state_left_behind(now["slurm.conf"], files["slurm.conf"], state_written)
    wrong += [text for text in (cold, change.lost(now, files)) if text]
    if wrong:
        module.fail_json(msg=f"Refusing to write {module.params['path']}: {'; '.join(wrong)}", problems=wrong)


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
    mark = change.digest(files)
    wanted = {**files, module.params["digest_file"]: f"{mark}\n"}
    before = {name: (base / name).read_text(encoding="utf-8") if (base / name).exists() else "" for name in wanted}
    differs = [name for name, text in wanted.items() if before[name] != text]
    if differs:
        refuse(module, before, files)
    if differs and not module.check_mode:
        base.mkdir(parents=True, exist_ok=True)
        for name in differs:
            replace(base / name, wanted[name].encode(), "root", 0o644)
    diff = [
        {"before_header": str(base / n), "after_header": str(base / n), "before": before[n], "after": wanted[n]}
        for n in differs
    ]
    module.exit_json(changed=bool(differs), written=[str(base / n) for n in differs], digest=mark, diff=diff)


if __name__ == "__main__":
    main()
