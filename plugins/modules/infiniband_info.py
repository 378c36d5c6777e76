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
  - Returns every InfiniBand port of a node with its state, rate, NUMA node and counters, and one check record about all
    of them. Nothing on the node is changed.
  - Reads sysfs, which needs neither privileges nor tools. C(ibstat) is run only where sysfs shows no port.
  - Whether a port is InfiniBand is decided by its link layer and not by the name of its device. Ethernet ports of RDMA
    devices, such as accelerated networking on Azure, are returned in RV(others) and never judged.
  - The reason of the check record names every port that is not up, and where to look. On a machine without InfiniBand
    of which none is expected the verdict is V(skipped).
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, in check mode as well.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  ports:
    description:
      - Number of InfiniBand ports that must be up. Both fewer and more fail.
      - With V(0) it is the number of ports of O(devices), at least one for each of them. Without O(devices) it is not
        checked, unless O(expect) has a limit for the metric C(active).
    type: int
    default: 0
  devices:
    description:
      - Names of the InfiniBand devices that must exist, such as V(mlx5_ib0). One that is missing fails the check and is
        named.
    type: list
    elements: str
    default: []
  ibstat:
    description:
      - Path of C(ibstat), or the directory that holds it. By default E(PATH), V(/usr/sbin), V(/sbin),
        V(/usr/local/sbin) and V(/opt/mellanox/infiniband-diags/sbin) are searched.
      - With another O(sysfs) than V(/sys) it is run only if it is set here.
    type: path
  timeout:
    description:
      - Seconds for C(ibstat).
    type: float
    default: 20
seealso:
  - module: hpcai.gpu_cluster.infiniband_bandwidth
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Check the InfiniBand ports of a node against the profile of its machine type
  hpcai.gpu_cluster.infiniband_info:
    ports: "{{ sku.infiniband.count }}"
    devices: "{{ sku.infiniband.devices }}"
    expect: "{{ sku.expect }}"
    profile: Standard_ND96asr_v4
  vars:
    sku: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4') }}"
  register: fabric

- name: Show the ports whose link had symbol errors
  ansible.builtin.debug:
    msg: >-
      {{ fabric.ports | selectattr('counters.symbol_error', 'defined') | selectattr('counters.symbol_error', 'gt', 0)
      | map(attribute='device') }}

- name: Stop where one of eight ports is not up
  hpcai.gpu_cluster.infiniband_info:
    ports: 8
  register: fabric
  failed_when: fabric.checks[0].verdict not in ['pass', 'unjudged']

- name: Read the ports from a copy of another machine's sysfs
  hpcai.gpu_cluster.infiniband_info:
    sysfs: /var/tmp/support/gpu-017/sys
    name: gpu-017
"""

RETURN = r"""
checks:
  description: One check record about all InfiniBand ports.
  type: list
  elements: dict
  returned: success
  contains:
    schema:
      description: Version of the format of the record.
      type: int
      sample: 1
    run:
      description: Value of O(run), null without it.
      type: str
      sample: nightly-2026-11-02
    node:
      description: O(name), by default the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: infiniband_ports
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 0.02
    verdict:
      description:
        - V(pass), V(warn) and V(fail) say how the metrics compare with what is expected.
        - V(unjudged) means that something was measured and nothing was expected, V(skipped) that there was nothing to
          measure, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: fail
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: fabric
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "mlx5_ib3: Down, Polling (nothing answers at the other end: cable, transceiver, switch port)"
    scope:
      description:
        - Names of the ports at fault as C(nic). A device with several ports is followed by a colon and the number of
          the port.
      type: dict
      sample: {nic: [mlx5_ib3]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(active), the number of ports that are up, and C(rate) of each port in Gb/s with the label C(nic), 0
          for a port that is not up and null for a device that is missing.
      type: list
      elements: dict
      sample:
        - name: active
          value: 7
          unit: ports
          expected: == 8
          source: number of ports that was planned
          ratio: 0.875
          verdict: fail
    samples:
      description: State and error counters of every port. Counters that are 0 are left out.
      type: list
      elements: dict
      sample: [{nic: mlx5_ib3, port: 1, state: Down, physical_state: Polling, rate: 10 Gb/sec (4X SDR), errors: {}}]
    evidence:
      description: Always empty.
      type: str
      sample: ""
    context:
      description: Program that measured, its version and command line, O(profile), and what else explains the values.
      type: dict
      sample: {tool: sysfs, version: null, argv: [], firmware: [20.31.2006], profile: Standard_ND96asr_v4}
ports:
  description: InfiniBand ports. Values that could not be read are null.
  type: list
  elements: dict
  returned: success
  contains:
    device:
      description: Name of the device.
      type: str
      sample: mlx5_ib0
    port:
      description: Number of the port.
      type: int
      sample: 1
    state:
      description: Logical state, as C(ibstat) spells it.
      type: str
      sample: Active
    physical_state:
      description: Physical state, as C(ibstat) spells it.
      type: str
      sample: LinkUp
    rate_gbps:
      description: Rate in Gb/s.
      type: float
      sample: 200.0
    rate:
      description: Rate with width and speed of the link, as the kernel writes it.
      type: str
      sample: 200 Gb/sec (4X HDR)
    link_layer:
      description: Link layer.
      type: str
      sample: InfiniBand
    sm_lid:
      description: Local identifier of the subnet manager. V(0) if none has configured the port.
      type: int
      sample: 1
    type:
      description: Type of the adapter.
      type: str
      sample: MT4124
    firmware:
      description: Version of the firmware.
      type: str
      sample: 20.31.2006
    pci:
      description: PCI address.
      type: str
      sample: "0101:00:00.0"
    numa_node:
      description: NUMA node.
      type: int
      sample: 1
    counters:
      description: Counters of the kernel by name. Those of data are in units of 4 bytes.
      type: dict
      sample: {symbol_error: 0, link_downed: 0, port_rcv_data: 1267650}
others:
  description: Ports with another link layer, with the keys of RV(ports).
  type: list
  elements: dict
  returned: success
  sample: [{device: mlx5_an0, port: 1, state: Active, physical_state: LinkUp, rate_gbps: 50.0, link_layer: Ethernet}]
source:
  description: Where the ports were read, V(sysfs) or V(ibstat). Null if there are none.
  type: str
  returned: success
  sample: sysfs
argv:
  description: Command line of C(ibstat), empty if it was not run.
  type: list
  elements: str
  returned: success
  sample: [/usr/sbin/ibstat]
environment:
  description: Environment variables that were set. There are none.
  type: dict
  returned: success
  sample: {}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import info


def main() -> None:
    module = AnsibleModule(argument_spec=info.SPEC, supports_check_mode=True)
    try:
        result = info.perform(module.params)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge the InfiniBand ports: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
