#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ddp_node_info
short_description: Read from a node what decides whether it can train without a scheduler
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Reads the version of PyTorch and its GPUs, whether files are readable, names resolve and a port is free, and the
    jobs that Slurm has on the node, all as the user of the task.
  - >-
    Judges nothing and does not fail for what is missing. The filter P(hpcai.gpu_cluster.ddp_findings#filter) compares
    the results of several nodes.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  python:
    description:
      - Python interpreter that should import torch.
    type: path
    required: true
  script:
    description:
      - Script whose digest is returned, so that nodes can be compared. It must be readable too.
    type: path
  paths:
    description:
      - Further files and directories that must be readable.
    type: list
    elements: path
    default: []
  addresses:
    description:
      - Host names or addresses that must resolve on the node.
    type: list
    elements: str
    default: []
  port:
    description:
      - TCP port on which the rendezvous would listen. It is bound for a moment to see whether it is free.
    type: int
    default: 29400
seealso:
  - plugin: hpcai.gpu_cluster.ddp_findings
    plugin_type: filter
  - module: hpcai.gpu_cluster.ddp_run
"""

EXAMPLES = r"""
- name: Read every node as the user who trains
  hpcai.gpu_cluster.ddp_node_info:
    python: /shared/pytorch/current/bin/python
    script: /shared/train.py
    paths: [/shared/data/imagenet]
    addresses: "{{ ansible_play_hosts }}"
  become: true
  become_user: trainer
  register: read

- name: Refuse nodes that cannot train together
  ansible.builtin.assert:
    that: findings | length == 0
    fail_msg: "{{ findings | join('; ') }}"
  vars:
    nodes: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, ['read', 'node']))) }}"
    findings: "{{ nodes | hpcai.gpu_cluster.ddp_findings(8, ansible_play_hosts | first) }}"
  run_once: true

- name: Read the PyTorch and GPUs of one node
  hpcai.gpu_cluster.ddp_node_info:
    python: /opt/pytorch/bin/python
  register: read

- name: Read whether another rendezvous port is free
  hpcai.gpu_cluster.ddp_node_info:
    python: /opt/pytorch/bin/python
    port: 29511
  register: read
"""

RETURN = r"""
node:
  description:
    - What was read from the node.
  returned: success
  type: dict
  contains:
    torch:
      description:
        - Version of PyTorch, empty where it cannot be imported.
      returned: always
      type: str
      sample: 2.9.0
    torch_problem:
      description:
        - Last line of the error when PyTorch cannot be imported, else empty.
      returned: always
      type: str
      sample: ""
    gpus:
      description:
        - GPUs that PyTorch sees, 0 without CUDA.
      returned: always
      type: int
      sample: 8
    python:
      description:
        - The interpreter that was used, which is O(python).
      returned: always
      type: str
      sample: /shared/pytorch/current/bin/python
    hostname:
      description:
        - Short host name.
      returned: always
      type: str
      sample: gpu1
    user:
      description:
        - User as whom all of this was read.
      returned: always
      type: str
      sample: trainer
    cpus:
      description:
        - CPUs of the node.
      returned: always
      type: int
      sample: 96
    missing:
      description:
        - Those of O(paths) and O(script) that are missing or not readable.
      returned: always
      type: list
      elements: str
      sample: []
    script_sha256:
      description:
        - SHA-256 of O(script), V(null) without one or when it cannot be read.
      returned: always
      type: str
      sample: 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0
    unresolved:
      description:
        - Those of O(addresses) that do not resolve.
      returned: always
      type: list
      elements: str
      sample: []
    port:
      description:
        - The port that was tried, which is O(port).
      returned: always
      type: int
      sample: 29400
    port_free:
      description:
        - Whether the port could be bound.
      returned: always
      type: bool
      sample: true
    jobs:
      description:
        - >-
          IDs of Slurm's running jobs on the node. Where there is no C(squeue) but job steps run, one entry with their
          number. Empty on a machine without Slurm, or one that Slurm does not know.
      returned: always
      type: list
      elements: str
      sample: []
    jobs_problem:
      description:
        - Why Slurm did not answer, else empty.
      returned: always
      type: str
      sample: ""
"""

import hashlib
import json
import os
import pwd
import socket
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

SPEC = {
    "python": {"type": "path", "required": True},
    "script": {"type": "path"},
    "paths": {"type": "list", "elements": "path", "default": []},
    "addresses": {"type": "list", "elements": "str", "default": []},
    "port": {"type": "int", "default": 29400},
}

Json = t.Dict[str, t.Any]
Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]
_PROBE = (
    "import gc, json, torch; gc.freeze(); cuda = torch.cuda.is_available();"
    "print(json.dumps({'torch': torch.__version__, 'gpus': torch.cuda.device_count() if cuda else 0}))"
)


def facts(params: t.Mapping[str, t.Any], run: Run, squeue: str | None) -> Json:
    """Return the facts that decide whether this node may and can take part."""
    script = Path(params["script"]) if params["script"] else None
    paths = [Path(path) for path in [*params["paths"], *([script] if script else [])]]
    jobs, problem = slurm_jobs(run, squeue, socket.gethostname().partition(".")[0])
    return {
        **_torch(run, params["python"]),
        "python": params["python"],
        "hostname": socket.gethostname().partition(".")[0],
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "cpus": os.cpu_count(),
        "missing": [str(path) for path in paths if not os.access(path, os.R_OK)],
        "script_sha256": _digest(script),
        "unresolved": [name for name in params["addresses"] if not _resolves(name)],
        "port": params["port"],
        "port_free": _free(params["port"]),
        "jobs": jobs,
        "jobs_problem": problem,
    }


def _torch(run: Run, python: str) -> Json:
    none: Json = {"torch": "", "gpus": 0}
    rc, out, err = run([python, "-c", _PROBE])
    try:
        versions = json.loads(out.splitlines()[-1]) if rc == 0 else None
    except (ValueError, IndexError):
        versions = None
    if not isinstance(versions, dict):
        return {**none, "torch_problem": ((err or out).strip().splitlines() or [f"exit status {rc}"])[-1]}
    return {**versions, "torch_problem": ""}


def slurm_jobs(run: Run, squeue: str | None, host: str) -> tuple[list[str], str]:
    """Return the jobs that Slurm has on this node, and why it cannot tell; a machine without Slurm has none."""
    steps = _steps()
    if not squeue:
        return ([f"{len(steps)} steps"] if steps else []), ""
    rc, out, err = run([squeue, "-h", "-w", host, "-t", "R,CF,CG,S,SO,ST", "-o", "%i"])
    if rc == 0:
        return sorted(set(out.split())), ""
    if "Invalid node name" in err:
        return [], ""
    return [], (err or out).strip().replace("\n", " ")


def _steps(proc: Path = Path("/proc")) -> list[str]:
    """Return the processes that watch over job steps; they are there also where no client of Slurm is."""
    steps = []
    for path in proc.glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8").startswith("slurmstepd"):
                steps.append(path.parent.name)
        except OSError:
            continue
    return steps


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _digest(path: Path | None) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else None
    except OSError:
        return None


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Return what a training needs of this node."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        # A program that is not there is an answer too.
        try:
            return module.run_command(argv, handle_exceptions=False)
        except OSError as exc:
            return 127, "", str(exc)

    return {"node": facts(module.params, run, module.get_bin_path("squeue"))}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.exit_json(changed=False, **perform(module))


if __name__ == "__main__":
    main()
