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
  - >-
    Writes C(slurm.conf) and the files beside it, or none of them when a check fails, so that no daemon reads a bad
    file. The checks run in check mode too, and whenever at least one file differs.
  - >-
    Of C(slurm.conf) the module checks the structure, keys that are set twice, references between partitions, node sets
    and nodes, and the form of plugin names. Then C(sinfo), where it is installed, reads all files from a private
    directory, which finds unknown keys and bad values.
  - >-
    Of C(gres.conf) and C(topology.conf) it checks the structure and that their nodes, devices and switches are defined.
    Of C(cgroup.conf) it checks that each line is C(Name=value). No command of Slurm reads these three files before
    C(slurmd) starts.
  - >-
    Refuses a change of C(StateSaveLocation) that would leave the state of jobs behind, a C(plugstack.conf) that
    would lose plugins which somebody else put there, a C(topology.conf) or C(topology.yaml) in place of somebody
    else's, and a C(topology.conf) beside a C(topology.yaml) that stays, with which Slurm 25.05 and later ignore it.
  - >-
    Refuses to drop nodes on which C(squeue) shows jobs, or of which it shows nothing because C(slurmctld) does not
    answer, unless O(drop_busy_nodes) allows it.
  - >-
    Keeps a digest of the settings that daemons read only when they start, from which
    M(hpcai.gpu_cluster.service_current) tells a restart from a reconfigure. It neither restarts nor reconfigures.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description:
      - Directory of the files. It is made when missing.
    type: path
    default: /etc/slurm
  files:
    description:
      - >-
        Names of the files, relative to O(path), and the whole text of each. V(slurm.conf) must be among them.
      - Each file belongs to C(root) with mode 0644. Files that are not named here are neither changed nor removed.
      - An empty text removes the file if it begins with the comment that V(slurm.conf) begins with, and leaves it
        alone if somebody else wrote it.
    type: dict
    required: true
  digest_file:
    description:
      - Name of the file in O(path) that holds RV(digest).
    type: str
    default: restart.digest
  drop_busy_nodes:
    description:
      - Whether nodes may vanish from V(slurm.conf) although jobs run on them, which C(slurmctld) then ends, or although
        C(slurmctld) does not tell.
    type: bool
    default: false
notes:
  - >-
    No release of Slurm can test the meaning of a whole configuration without starting the daemon. A well-formed but
    wrong value can still show only then.
seealso:
  - module: hpcai.gpu_cluster.service_current
  - name: slurm.conf
    description: The settings and when daemons read them.
    link: https://slurm.schedmd.com/slurm.conf.html
"""
EXAMPLES = r"""
- name: Write slurm.conf alone
  hpcai.gpu_cluster.slurm_config:
    files:
      slurm.conf: "{{ lookup('ansible.builtin.template', 'slurm.conf.j2') }}"
  become: true

- name: Write slurm.conf, gres.conf and cgroup.conf together
  hpcai.gpu_cluster.slurm_config:
    files:
      slurm.conf: "{{ lookup('ansible.builtin.template', 'slurm.conf.j2') }}"
      gres.conf: |
        NodeName=c[1-8] Name=gpu Type=h100 File=/dev/nvidia[0-7]
      cgroup.conf: |
        CgroupPlugin=autodetect
        ConstrainCores=yes
        ConstrainDevices=yes
  become: true
  register: slurm_files

- name: Show what would change, and check it, without writing
  hpcai.gpu_cluster.slurm_config:
    path: /opt/slurm/etc
    files:
      slurm.conf: "{{ lookup('ansible.builtin.file', 'slurm.conf') }}"
  check_mode: true
  diff: true
"""
RETURN = r"""
written:
  description:
    - Paths of the files that differed and were written, or would be in check mode, the digest's file included.
  returned: success
  type: list
  elements: str
  sample: [/etc/slurm/slurm.conf, /etc/slurm/restart.digest]
digest:
  description:
    - >-
      Digest of what daemons read only when they start. It stays the same when only partitions, timeouts, limits or
      programs change, which C(scontrol reconfigure) brings to the daemons.
  returned: success
  type: str
  sample: 0a1b2c3d4e5f6071
problems:
  description:
    - Why the files were refused, one sentence each.
  returned: when the files are refused
  type: list
  elements: str
  sample: ["partition main names unknown nodes: c9"]
"""

import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import conf as change
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import problems, problems_beside

SPEC = {
    "path": {"type": "path", "default": "/etc/slurm"},
    "files": {"type": "dict", "required": True},
    "digest_file": {"type": "str", "default": "restart.digest"},
    "drop_busy_nodes": {"type": "bool", "default": False},
}


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
    errors = [line for line in (out + err).splitlines() if "error:" in line or "fatal:" in line]
    return errors or ([f"sinfo ended with {rc}"] if rc else [])


def state_written(directory: str) -> float:
    """Return when slurmctld last wrote its jobs into a directory of state, or 0 if it never did."""
    state = Path(directory) / "job_state"
    return state.stat().st_mtime if state.exists() else 0.0


def busy(module: AnsibleModule, before: str, after: str) -> str:
    """Say which jobs run on nodes that would be dropped."""
    dropped = change.dropped_nodes(before, after)
    squeue = module.get_bin_path("squeue")
    if module.params["drop_busy_nodes"] or not dropped or not squeue:
        return ""
    # All jobs: of a list of nodes squeue refuses the whole for one that slurmctld does not know.
    argv = [squeue, "--noheader", "--all", "--states=R,CG,S,CF,SO", "--format=%A|%u|%T|%N"]
    return change.busy_nodes(dropped, *module.run_command(argv))


def refuse(module: AnsibleModule, now: t.Mapping[str, str], files: t.Mapping[str, str]) -> None:
    """Fail if these files must not be written."""
    wrong = problems(files["slurm.conf"]) or problems_beside(files) or parse_with_slurm(module, files)
    cold = change.state_left_behind(now["slurm.conf"], files["slurm.conf"], state_written)
    wrong += [text for text in (cold, change.lost_plugins(now, files)) if text]
    wrong += change.foreign_topology(now, files, (Path(module.params["path"]) / "topology.yaml").exists())
    wrong += [text for text in [busy(module, now["slurm.conf"], files["slurm.conf"])] if text]
    if wrong:
        module.fail_json(msg=f"Refusing to write {module.params['path']}: {'; '.join(wrong)}", problems=wrong)


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Write the files that differ, after Slurm and the cluster's state have been asked."""
    base, files = Path(module.params["path"]), dict(module.params["files"])
    if "slurm.conf" not in files:
        module.fail_json(msg="files must hold slurm.conf")
    mark = change.digest(files)
    contents = {**files, module.params["digest_file"]: f"{mark}\n"}
    before = {name: (base / name).read_text(encoding="utf-8") if (base / name).exists() else "" for name in contents}
    stays = {name for name, text in files.items() if not text and not change.is_ours(before[name], files["slurm.conf"])}
    differs = [name for name, text in contents.items() if before[name] != text and name not in stays]
    if differs:
        refuse(module, before, files)
    if differs and not module.check_mode:
        base.mkdir(parents=True, exist_ok=True)
        for name in differs:
            if contents[name]:
                replace_owned(base / name, contents[name].encode(), "root", 0o644)
            else:
                (base / name).unlink()
    diff = [
        {"before_header": str(base / n), "after_header": str(base / n), "before": before[n], "after": contents[n]}
        for n in differs
    ]
    return {"changed": bool(differs), "written": [str(base / n) for n in differs], "digest": mark, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except OSError as exc:
        module.fail_json(msg=f"Cannot write {module.params['path']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
