#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_settings
short_description: Run the CycleCloud server with given settings and a TLS certificate
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs as root on the CycleCloud VM, where the package has to be installed.
  - Sets keys of C(config/cycle_server.properties) below O(home) in place and leaves all others alone. The file becomes
    readable by root and the server alone (mode C(0640)), because it may hold a password; a tighter mode stays.
  - Starts a server that does not run, and restarts it when settings or certificate are not those that it was last
    started with, also after a run that was interrupted. It waits until the server answers.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the settings file; values of keys that name a password, secret or token are hidden.
  idempotent:
    support: full
options:
  settings:
    description:
      - Keys and values of the settings file. Booleans are written as C(true) and C(false). A key that is there several
        times is changed at its last definition, which is the one that counts.
    type: dict
    required: true
  hostname:
    description:
      - Name under which the server is reached. It becomes the first name of a certificate that is generated, and has to
        be the full public name with O(tls.automatic).
    type: str
    default: ""
  names:
    description:
      - Further names and IP addresses of the host for a certificate that is generated. V(localhost) and V(127.0.0.1)
        are always among them.
    type: list
    elements: str
    default: []
  tls:
    description:
      - Certificate of the server. Without O(tls.certificate) and O(tls.automatic) a self-signed one is generated, valid
        for 825 days, and generated again when its names change or it has less than 30 days left.
    type: dict
    default: {}
    suboptions:
      certificate:
        description:
          - Text of a certificate with its chain, in PEM format. It requires O(tls.key) and excludes O(tls.automatic).
        type: str
      key:
        description:
          - Text of its private key, in PEM format.
        type: str
      ca:
        description:
          - Text of the CA that verifies O(tls.certificate), in PEM format, where systems do not trust it by default. It
            is returned as RV(ca).
        type: str
      automatic:
        description:
          - Whether the server gets a certificate from Let's Encrypt by itself, which accepts the terms of Let's
            Encrypt.
        type: bool
        default: false
      names:
        description:
          - Further names for a certificate that is generated, in addition to O(names).
        type: list
        elements: str
  startup:
    description:
      - Seconds within which the server has to start and to answer.
    type: int
    default: 900
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_package
  - module: hpcai.gpu_cluster.cyclecloud_site
"""
EXAMPLES = r"""
- name: Serve HTTPS alone, with a self-signed certificate
  hpcai.gpu_cluster.cyclecloud_settings:
    settings:
      webServerEnableHttp: false
      webServerEnableHttps: true
      webServerSslPort: 8443
    hostname: cyclecloud.example.org
    names: "{{ ansible_facts['all_ipv4_addresses'] | sort }}"
  become: true
  register: server

- name: Serve with a certificate of the company's CA and more memory
  hpcai.gpu_cluster.cyclecloud_settings:
    settings:
      webServerEnableHttps: true
      webServerMaxHeapSize: 4096M
    tls:
      certificate: "{{ lookup('ansible.builtin.file', 'cyclecloud.pem') }}"
      key: "{{ vault_cyclecloud_key }}"
      ca: "{{ lookup('ansible.builtin.file', 'company-ca.pem') }}"
  become: true

- name: Serve with a certificate of Let's Encrypt
  hpcai.gpu_cluster.cyclecloud_settings:
    settings:
      webServerEnableHttps: true
    hostname: cyclecloud.example.org
    tls:
      automatic: true
  become: true
"""
RETURN = r"""
ca:
  description:
    - Text of the certificate that verifies the server, in PEM format, for option C(ca_path) of other modules. It is the
      self-signed certificate or O(tls.ca), and empty where systems trust the certificate by default.
  returned: success
  type: str
  sample: "-----BEGIN CERTIFICATE-----\nMIIE...\n-----END CERTIFICATE-----\n"
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import server_cli
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server import (
    CycleServer,
    server_request,
    shown,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError, alone

TLS = {
    "certificate": {"type": "str"},
    "key": {"type": "str", "no_log": True},
    "ca": {"type": "str"},
    "automatic": {"type": "bool", "default": False},
    "names": {"type": "list", "elements": "str"},
}
SPEC: dict[str, t.Any] = {
    "settings": {"type": "dict", "required": True},
    "hostname": {"type": "str", "default": ""},
    "names": {"type": "list", "elements": "str", "default": []},
    "tls": {"type": "dict", "default": {}, "options": TLS},
    "startup": {"type": "int", "default": 900},
    **server_cli.SPEC,
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Bring the settings and the certificate of the server, and the server to run with them."""
    with alone(params["state_dir"], check_mode):
        tls = server_request(params["tls"], params["hostname"], params["names"])
        server = CycleServer(Cli(params), params["state_dir"])
        if not server.cli.installed() and not check_mode:
            raise CliError(f"{server.cli.server_program} is not there: install the package first")
        observed = server.look(params["settings"], tls)
        changed = observed["restart"] or observed["certificate"] or observed["loose"] or not observed["running"]
        if changed and not check_mode:
            server.bring(observed, tls, params["startup"])
        name = str(server.file.path)
        diff = {
            "before_header": name,
            "after_header": name,
            **{key: shown(observed[key]) for key in ("before", "after")},
        }
        if observed["loose"]:
            diff["before_header"] = f"{name}, readable by more than root and the server"
            diff["after_header"] = f"{name}, not so"
        return {"changed": changed, "ca": server.authority(), "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"CycleCloud does not run with its settings: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
