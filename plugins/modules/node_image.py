#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image
short_description: Make a machine the source of an image that many nodes start from
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes what the image was made with to C(/etc/hpcai/image.json), and removes what is the machine's own or secret and
    was made by the system, its packages or this collection, such as the SSH host keys, the munge key that munge's
    package makes, DHCP leases, logs, the state of cloud-init and shell histories. The machine ID becomes an empty file.
    Small files are overwritten before they are removed, since an image holds the blocks of removed files, too.
  - Machines of the image make SSH host keys at boot where neither cloud-init nor the system did, and have the
    description as the local fact C(hpcai_image).
  - What a person has put there is not removed. If a secret would stay, such as a private key, a file with credentials
    or a password in C(/etc/shadow), nothing is changed and the module fails with its path, unless O(remove) or O(keep)
    names it.
  - A machine that is a part of a cluster already is refused, since its units and mounts are those of that cluster.
  - Packages that nvidia_driver, package_hold and deb_packages have noted as this collection's stay noted in the image.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  collection:
    description:
      - Version of this collection. Nodes of the image are older than a cluster that a later version configures.
    type: str
    required: true
  date:
    description:
      - Date of the image, such as V(2026-11-23T08:00:00Z). It stays if nothing else in the description changes.
    type: str
    required: true
  driver:
    description:
      - Version of the GPU driver in the image. Empty if there is none.
    type: str
    default: ''
  bundle:
    description:
      - Digest of the bundle that nodes of this image were made for (M(hpcai.gpu_cluster.node_bundle)), if there is one.
    type: str
    default: ''
  packages:
    description:
      - Patterns of names of the packages whose versions are written. The digest is one of all packages.
    type: list
    elements: str
    default: []
  remove:
    description:
      - Patterns of further absolute paths that are removed, such as V(/etc/ssl/private/ssl-cert-snakeoil.key).
    type: list
    elements: str
    default: []
  services:
    description:
      - Services that are stopped and do not start at boot, because their node has to be configured first. Those that
        are not installed are passed over.
    type: list
    elements: str
    default: [munge, slurmd]
  keep:
    description:
      - Absolute paths of files and directories that are the machine's own or look like secrets, and are meant to be in
        the image. Whoever can read the image can read them.
    type: list
    elements: path
    default: []
  root:
    description:
      - Directory below which the machine is, such as a mounted file system. Its packages are read from there.
    type: path
    default: /
  trim:
    description:
      - Whether the blocks of removed files are given back to the disk (C(fstrim --all)). A disk that cannot take them
        is passed over. It is not done with another O(root) than V(/).
    type: bool
    default: true
  power_off:
    description:
      - Whether the machine switches itself off a few seconds after this module has ended. No new SSH connection may be
        possible then, as its host keys are gone. Needs systemd, and V(/) as O(root).
    type: bool
    default: false
notes:
  - Role P(hpcai.gpu_cluster.node_image#role) calls this module; nothing can be done on the machine after it.
seealso:
  - module: hpcai.gpu_cluster.node_bundle
"""

EXAMPLES = r"""
- name: Make this machine the source of an image, and switch it off
  hpcai.gpu_cluster.node_image:
    collection: 0.1.0
    date: "2026-11-23T08:00:00Z"
    packages: [slurm*, munge]
    power_off: true
  become: true

- name: Show what would be removed from a mounted file system
  hpcai.gpu_cluster.node_image:
    collection: 0.1.0
    date: "2026-11-23T08:00:00Z"
    root: /mnt/image
  become: true
  check_mode: true
  diff: true

- name: Accept a key that all nodes are to have, and remove one that Debian made for this machine
  hpcai.gpu_cluster.node_image:
    collection: 0.1.0
    date: "2026-11-23T08:00:00Z"
    keep: [/etc/ssl/private/site.key]
    remove: [/etc/ssl/private/ssl-cert-snakeoil.key]
  become: true
"""

RETURN = r"""
image:
  description: What C(/etc/hpcai/image.json) says.
  type: dict
  returned: success
  contains:
    schema:
      description: Version of this format.
      type: int
      returned: always
    collection:
      description: Version of this collection that made the image.
      type: str
      returned: always
    date:
      description: Date that the caller gave.
      type: str
      returned: always
    system:
      description: Distribution and its release.
      type: str
      returned: always
    kernel:
      description: Newest kernel that has modules in the image. Empty where there is none.
      type: str
      returned: always
    slurm:
      description: Upstream version of the package with slurmd. Empty where it is not installed.
      type: str
      returned: always
    driver:
      description: Version of the GPU driver.
      type: str
      returned: always
    bundle:
      description: Digest of the node bundle.
      type: str
      returned: always
    packages:
      description: Versions of the packages whose names match O(packages).
      type: dict
      returned: always
    packages_digest:
      description: SHA-256 of the list of all packages with their versions.
      type: str
      returned: always
  sample:
    schema: 1
    collection: 0.1.0
    date: "2026-11-23T08:00:00Z"
    system: debian 12
    kernel: 6.1.0-31-cloud-amd64
    slurm: 22.05.8
    driver: ""
    bundle: ""
    packages: {munge: 0.5.15-2, slurmd: 22.05.8-4+deb12u3}
    packages_digest: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
removed:
  description: Paths that were removed, or in check mode would be.
  type: list
  elements: str
  returned: success
  sample: [/etc/munge/munge.key, /etc/ssh/ssh_host_ed25519_key]
emptied:
  description: Files that were emptied, or in check mode would be.
  type: list
  elements: str
  returned: success
  sample: [/etc/machine-id, /var/log/dpkg.log]
disabled:
  description: Those of O(services) that no longer start at boot.
  type: list
  elements: str
  returned: success
  sample: [munge]
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import image

SPEC = {
    "collection": {"type": "str", "required": True},
    "date": {"type": "str", "required": True},
    "driver": {"type": "str", "default": ""},
    "bundle": {"type": "str", "default": ""},
    "packages": {"type": "list", "elements": "str", "default": []},
    "remove": {"type": "list", "elements": "str", "default": []},
    "services": {"type": "list", "elements": "str", "default": ["munge", "slurmd"]},
    "keep": {"type": "list", "elements": "path", "default": []},
    "root": {"type": "path", "default": "/"},
    "trim": {"type": "bool", "default": True},
    "power_off": {"type": "bool", "default": False},
}


# Longer than Ansible takes to hear of the result, on an emulated machine, too.
POWER_OFF_AFTER = 5
DPKG = "${db:Status-Status} ${Package} ${Version}\n"


def installed(module: AnsibleModule, root: Path) -> dict[str, str]:
    """Return all packages with their versions."""
    if (root / "var/lib/dpkg/status").exists():
        argv = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "--show", f"--showformat={DPKG}"]
    else:
        argv = ["rpm", f"--root={root}", "--query", "--all", "--queryformat=installed %{NAME} %{VERSION}-%{RELEASE}\n"]
    dummy, out, dummy = module.run_command(argv, check_rc=True)
    return {
        words[1]: words[2] for words in map(str.split, out.splitlines()) if len(words) == 3 and words[0] == "installed"
    }


def refusals(root: Path, gone: t.Collection[str], keep: list[str]) -> list[str]:
    """Say why this machine is the source of no image."""
    texts = [
        f"it is a part of a cluster: {text}; bake a machine that was never one" for text in image.of_a_cluster(root)
    ]
    stay = [f"/{secret.path} {secret.reason}" for secret in image.secrets(root, gone, keep)]
    return texts + [f"{text}; remove it there, or name it in remove or keep" for text in stay]


def plan(module: AnsibleModule, root: Path) -> tuple[dict[str, t.Any] | None, dict[str, t.Any], list[image.Trace]]:
    """Return the description that is there, the one that should be, and what has to go; a refusal ends the module."""
    params = module.params
    traces = image.traces(root, params["remove"], params["keep"])
    refused = refusals(root, [trace.path for trace in traces if trace.action == "remove"], params["keep"])
    if refused:
        module.fail_json(msg=f"Nothing was changed. No image can be made of this machine: {'. '.join(refused)}.")
    request = image.BakeRequest(
        params["collection"], params["date"], params["driver"], params["bundle"], params["packages"]
    )
    before = image.read_record(str(root / image.PATH.lstrip("/")))
    return before, image.settled(before, image.describe(root, installed(module, root), request)), traces


def perform(module: AnsibleModule, root: Path) -> dict[str, t.Any]:
    """Make the machine ready for an image; of a machine that is refused nothing is changed."""
    before, record, traces = plan(module, root)
    disabled = image.enabled(root, module.params["services"])
    written = image.unwritten(root, record)
    if not module.check_mode:
        rest(module, root, disabled)
        image.write(root, record)
        image.clean(root, traces)
        finish(module, root)
    removed = [f"/{trace.path}" for trace in traces if trace.action == "remove"]
    emptied = [f"/{trace.path}" for trace in traces if trace.action == "empty"]
    diff = [
        {"before_header": image.PATH, "after_header": image.PATH, "before": before or {}, "after": record},
        {"prepared": "".join(f"- {path}\n" for path in removed) + "".join(f"empty: {path}\n" for path in emptied)},
    ]
    changed = bool(written or disabled or traces)
    lists = {"removed": removed, "emptied": emptied, "disabled": disabled}
    return {"changed": changed, "image": record, **lists, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    root = Path(module.params["root"])
    try:
        result = perform(module, root)
    except (OSError, image.ImageError) as exc:
        module.fail_json(msg=f"No image can be made of the machine below {root}: {exc}")
    module.exit_json(**result)


def rest(module: AnsibleModule, root: Path, disabled: list[str]) -> None:
    """Stop the services before what they have open is removed, and let none start at boot."""
    if str(root) == "/" and Path("/run/systemd/system").is_dir() and module.params["services"]:
        # A service that is not installed is none to stop.
        module.run_command(["systemctl", "stop", *module.params["services"]])
    if disabled:
        module.run_command(["systemctl", f"--root={root}", "disable", *disabled], check_rc=True)


def finish(module: AnsibleModule, root: Path) -> None:
    """Give free blocks back, and have the machine switch itself off when Ansible has heard of the result."""
    if str(root) != "/":
        return
    if module.params["trim"] and module.get_bin_path("fstrim"):
        module.run_command(["fstrim", "--all", "--quiet-unsupported"])
    if module.params["power_off"]:
        argv = ["systemd-run", f"--on-active={POWER_OFF_AFTER}", "systemctl", "poweroff"]
        module.run_command(argv, check_rc=True)


if __name__ == "__main__":
    main()
