#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: infiniband_info
short_description: Read and judge the InfiniBand ports of a node
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Returns every InfiniBand port with its state, rate, place and counters, and one check record about all of them.
  - Reads sysfs, which needs no rights and no tools. C(ibstat) is asked where sysfs knows no port.
  - What is InfiniBand is told by the link layer and not by the name of a device. Ethernet ports of RDMA devices, such
    as accelerated networking on Azure, are listed apart and never judged.
  - Every port that is not up is named with what to look at. A machine without InfiniBand is V(skipped) unless
    something is expected of it.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode: {support: full, details: It only reads.}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  ports: {type: int, default: 0, description: "Number of InfiniBand ports that must be up, neither less nor more."}
  devices:
    {type: list, elements: str, default: [], description: "Names of the devices that must be there, so that a missing
      one has a name."}
  ibstat: {type: path, description: "Path of C(ibstat). Without it the usual places are searched."}
  timeout: {type: float, default: 20, description: Seconds for C(ibstat).}
"""

EXAMPLES = r"""
- name: Check the InfiniBand ports of a node
  hpcai.gpu_cluster.infiniband_info:
    ports: 8
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
  register: fabric

- name: Show ports with errors on the link
  ansible.builtin.debug:
    msg: "{{ fabric.ports | selectattr('counters.symbol_error', 'gt', 0) | map(attribute='device') }}"
"""

RETURN = r"""
checks:
  type: list
  elements: dict
  returned: success
  description: One check record with the metrics C(active) and C(rate).
  sample:
    - {schema: 1, node: gpu-001, check: infiniband_ports, verdict: fail, class: fabric, scope: {nic: [mlx5_ib3]},
       reason: "mlx5_ib3: Down, Polling (nothing answers at the other end: cable, transceiver, switch port)"}
ports:
  type: list
  elements: dict
  returned: success
  description: InfiniBand ports; counters are those of the kernel, data counters in units of 4 bytes.
  sample:
    - {device: mlx5_ib0, port: 1, state: Active, physical_state: LinkUp, rate_gbps: 200.0, rate: 200 Gb/sec (4X HDR),
       link_layer: InfiniBand, sm_lid: 1, type: MT4124, firmware: 20.31.2006, pci: "0101:00:00.0", numa_node: 1,
       counters: {symbol_error: 0, link_downed: 0, port_rcv_data: 1267650}}
others: {type: list, elements: dict, returned: success, description: Ports of another link layer in the same shape.}
source: {type: str, returned: success, description: "V(sysfs), V(ibstat) or nothing.", sample: sysfs}
argv: {type: list, elements: str, returned: success, description: "Command line of C(ibstat), if it was asked."}
environment: {type: dict, returned: success, description: "Variables that were set, which are none.", sample: {}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import read


def main() -> None:
    module = AnsibleModule(argument_spec=read.SPEC, supports_check_mode=True)
    try:
        result = read.perform(module.params)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge the InfiniBand ports: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
