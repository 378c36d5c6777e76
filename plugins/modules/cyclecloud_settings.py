#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_settings
short_description: Have CycleCloud run with its settings and its certificate, and answer
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs on the CycleCloud VM. Sets keys of C(cycle_server.properties) in place and leaves all others alone.
    The file is for root and the server alone (V(0640)), as a password may stand in it; a tighter mode stays.
  - The server is restarted when what it was last started with differs from what it shall have, also after a run that
    was killed in between, and awaited.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.cyclecloud_server]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  settings: {description: Keys and values., type: dict, required: true}
  hostname: {description: Name by which the server is called., type: str, default: ""}
  names: {description: Further names and addresses of this host., type: list, elements: str, default: []}
  tls:
    description: Nothing for a certificate made here; C(certificate) and C(key), PEM, and C(ca); or C(automatic).
    type: dict
    default: {}
    suboptions:
      certificate: {description: "Own certificate with its chain, PEM.", type: str}
      key: {description: "Its key, PEM.", type: str}
      ca: {description: "What verifies it, PEM, where systems do not know it.", type: str}
      automatic: {description: A certificate of Let's Encrypt., type: bool, default: false}
      names: {description: Further names for the certificate that is made here., type: list, elements: str}
  startup: {description: Seconds for the server to start., type: int, default: 900}
"""
EXAMPLES = r"""
- name: Serve by HTTPS alone
  hpcai.gpu_cluster.cyclecloud_settings:
    settings: {webServerEnableHttps: true, webServerSslPort: 8443}
"""
RETURN = r"""
ca: {description: "Certificate that verifies the server, PEM; empty where systems know it.", type: str,
  returned: success, sample: ""}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import SPEC, Cli, CliError, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server import Server, wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.settings import shown

TLS = {
    "certificate": {"type": "str"},
    "key": {"type": "str", "no_log": True},
    "ca": {"type": "str"},
    "automatic": {"type": "bool", "default": False},
    "names": {"type": "list", "elements": "str"},
}


def bring(module: AnsibleModule) -> Json:
    params = module.params
    tls = wanted(params["tls"], params["hostname"], params["names"])
    server = Server(Cli(params), params["state_dir"])
    if not server.cli.installed() and not module.check_mode:
        raise CliError(f"{server.cli.server_program} is not there: install the package first")
    found = server.look(params["settings"], tls)
    changed = found["restart"] or found["certificate"] or found["loose"] or not found["running"]
    if changed and not module.check_mode:
        server.bring(found, tls, params["startup"])
    name = str(server.file.path)
    diff = {"before_header": name, "after_header": name, **{key: shown(found[key]) for key in ("before", "after")}}
    if found["loose"]:
        diff.update(before_header=f"{name}, readable by more than root and the server", after_header=f"{name}, not so")
    return {"changed": changed, "ca": server.authority(), "diff": diff}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "required": True},
            "hostname": {"type": "str", "default": ""},
            "names": {"type": "list", "elements": "str", "default": []},
            "tls": {"type": "dict", "default": {}, "options": TLS},
            "startup": {"type": "int", "default": 900},
            **SPEC,
        },
        supports_check_mode=True,
    )
    try:
        result = bring(module)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"CycleCloud does not run with its settings: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
