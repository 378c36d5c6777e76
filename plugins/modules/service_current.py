#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a service running with its current files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_current
short_description: Keep a systemd service running with its current files
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes the files of a service, enables and starts it, and restarts or reloads it if its unit or one of the files is
    newer than its process.
  - Unlike a handler this also works if an earlier run was killed after it wrote a file and before it restarted the
    service.
  - If the service does not stay up, or O(ready) does not succeed in time, the module fails with the end of its
    journal and what the service wrote to O(log) meanwhile.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description:
      - Name of the unit without its suffix. It must exist once O(files) are written.
    type: str
    required: true
  files:
    description:
      - Files and directories of the service. A changed file restarts the service, or reloads it if O(reload_on) names
        the file, too.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - Path of the file or directory. Missing directories above it are created.
        type: path
        required: true
      content:
        description:
          - Content of a text file. Without O(files[].content), O(files[].base64) and O(files[].secret) the path is a
            directory.
        type: str
      base64:
        description:
          - Content of a file that is not text, in base64. A diff shows its digests. It takes precedence over
            O(files[].content).
        type: str
      secret:
        description:
          - Content of a file that must not be shown, in base64. A diff does not show it. It takes precedence over
            O(files[].base64).
        type: str
      owner:
        description:
          - User that owns it, and group of the same name.
        type: str
        default: root
      mode:
        description:
          - Mode in octal digits and quotes. The default is 0644 for files and 0755 for directories.
        type: str
      diff:
        description:
          - Whether a diff shows the lines of a text file. With V(false) it shows digests.
        type: bool
        default: true
  restart_on:
    description:
      - Other files that the service reads when it starts. A newer one restarts it. Files that do not exist do not
        matter.
    type: list
    elements: path
    default: []
  reload_on:
    description:
      - Files that the service reads again when it is reloaded. A newer one reloads it.
    type: list
    elements: path
    default: []
  written:
    description:
      - Files that an earlier task of this run wrote. In check mode those of them that O(restart_on) or O(reload_on)
        name count as just written, since the earlier task did not write them.
    type: list
    elements: path
    default: []
  reload:
    description:
      - Command that reloads the service. The default is C(systemctl reload).
    type: list
    elements: str
  ready:
    description:
      - Command that succeeds once the service answers. It is run again until it does. Without it the service only has
        to run.
    type: list
    elements: str
  timeout:
    description:
      - Seconds to wait for O(ready).
    type: int
    default: 60
  log:
    description:
      - File to which the service logs by itself, such as C(/var/log/slurm/slurmctld.log), since its journal then says
        little. Where the service does not run, the last 12 of the lines that it wrote there meanwhile are part of the
        message. A file that does not exist, or is no regular file, does not matter.
    type: path
  no_cycles:
    description:
      - Fail if units of this machine wait for each other in a cycle, because of these files or others. At the next boot
        systemd would leave out one of them, which may be this one, and log that to its journal only. It is not skipped
        in check mode, which looks at the files as they are.
    type: bool
    default: false
notes:
  - The module needs root privileges.
  - A service without a main process, such as one of the type C(oneshot), is started and enabled, but never restarted or
    reloaded, since there is no process to compare the files with.
seealso:
  - module: ansible.builtin.systemd_service
  - plugin: hpcai.gpu_cluster.service_settled
    plugin_type: filter
"""
EXAMPLES = r"""
- name: Run slurmctld with its current configuration
  hpcai.gpu_cluster.service_current:
    name: slurmctld
    files:
      - path: /etc/systemd/system/slurmctld.service.d/site.conf
        content: "{{ lookup('ansible.builtin.template', 'site.conf') }}"
    restart_on: [/etc/slurm/restart.digest]
    reload_on: [/etc/slurm/slurm.conf]
    reload: [scontrol, reconfigure]
    ready: [scontrol, ping]
    log: /var/log/slurm/slurmctld.log
  become: true

- name: Run munged with the key of the cluster
  hpcai.gpu_cluster.service_current:
    name: munge
    files:
      - path: /etc/munge/munge.key
        secret: "{{ cluster_key.key }}"
        owner: munge
        mode: "0400"
    ready: [munge, --no-input]
  become: true

- name: Run an exporter from a unit of your own
  hpcai.gpu_cluster.service_current:
    name: gpu-exporter
    files:
      - path: /var/lib/gpu-exporter
        owner: prometheus
      - path: /etc/systemd/system/gpu-exporter.service
        content: |
          [Unit]
          After=network-online.target
          [Service]
          User=prometheus
          ExecStart=/usr/local/bin/gpu-exporter
          [Install]
          WantedBy=multi-user.target
    no_cycles: true
  become: true
"""
RETURN = r"""
action:
  description: What was done to the service, or in check mode would be, V(start), V(restart), V(reload) or nothing.
  type: str
  returned: success
  sample: restart
stale:
  description: Files that are newer than the process of the service, or in check mode would be.
  type: list
  elements: str
  returned: success
  sample: [/etc/systemd/system/slurmctld.service.d/site.conf]
written:
  description: Those of O(files) whose content changed, or in check mode would change.
  type: list
  elements: str
  returned: success
  sample: [/etc/systemd/system/slurmctld.service.d/site.conf]
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, keep_all
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._systemd import (
    Service,
    ServiceError,
    plan,
    times,
    unit_files,
)

PATHS: dict[str, t.Any] = {"type": "list", "elements": "path", "default": []}
WORDS: dict[str, t.Any] = {"type": "list", "elements": "str"}
SPEC: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "dict", "default": [], "options": _owned_files.SPEC},
    "written": PATHS,
    "restart_on": PATHS,
    "reload_on": PATHS,
    "reload": WORDS,
    "ready": WORDS,
    "log": {"type": "path"},
    "no_cycles": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 60},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Write the files, then do to the service what they ask for."""
    changed, written, diff = keep_all(module, module.params["files"])
    service = Service(module)
    unit = service.show()
    own = [entry["path"] for entry in module.params["files"]]
    others = [*module.params["restart_on"], *module.params["reload_on"]]
    announced = [path for path in module.params["written"] if path in others and module.check_mode]
    seen = times([*unit_files(unit), *own, *others], {**dict.fromkeys(announced, time.time()), **written})
    reload_on = {path: seen.pop(path) for path in module.params["reload_on"] if path in seen}
    todo = plan(unit, seen, reload_on, service.reloaded())
    if not module.check_mode:
        service.run(unit, todo)
    if module.params["no_cycles"]:
        service.refuse_cycles()
    changed = changed or todo.changed
    return {"changed": changed, "action": todo.action, "stale": todo.stale, "written": sorted(written), "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (FileError, ServiceError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
