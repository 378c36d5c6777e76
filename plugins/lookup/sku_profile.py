# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: sku_profile
short_description: Return what a machine type is and what is expected of it
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns the profile of a machine type. An unknown one gets the profile C(generic), which expects nothing, so that
    its measurements stay V(unjudged).
  - Case does not matter, nor does the prefix C(Standard_) of Azure's VM sizes.
  - A site's own profile wins over the shipped one of the same name. It is a file C(<machine type>.yml) in the directory
    of the variable C(cluster_profile_dir), by default C(profiles) beside the inventory
    (P(hpcai.gpu_cluster.profile_dir#lookup)). Its C(base) names the profiles that it lies over, shipped ones or others
    of the site. What is wrong in it is refused with the path of each value.
options:
  _terms:
    description:
      - Machine types (SKU names), such as V(Standard_ND96asr_v4). Letters, digits, C(_), C(.) and C(-) are accepted.
    required: true
  overrides:
    description:
      - Partial profile of a site, which is laid over the shipped one.
      - Mappings are merged key by key, at any depth. Lists and values are replaced, and V(null) removes a key.
      - An entry of C(expect) replaces the shipped one for the same check, metric, labels, node count and verdict, and
        is added otherwise. With C(value) V(null) it removes the shipped one, which then has to exist.
      - A unit other than that of the metric is refused.
    type: dict
    default: {}
seealso:
  - plugin: hpcai.gpu_cluster.profile_dir
    plugin_type: lookup
  - plugin: hpcai.gpu_cluster.profile_topology
    plugin_type: filter
  - plugin: hpcai.gpu_cluster.scratch_options
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show what is expected of a machine type
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"

- name: Expect more than the shipped profile does, and set another NCCL variable
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku, overrides=site_profile) }}"
  vars:
    site_profile:
      nccl:
        environment:
          NCCL_DEBUG: INFO
      expect:
        - check: gpu_bandwidth
          metric: h2d
          op: ">="
          value: 24
          unit: GB/s
          source: our acceptance test

- name: Stop when the machine type of this cluster has no profile
  ansible.builtin.assert:
    that: lookup('hpcai.gpu_cluster.sku_profile', cluster_sku).known
    fail_msg: There is no profile of {{ cluster_sku }}, so that measurements stay unjudged.
"""

RETURN = r"""
_raw:
  description:
    - One profile for each term. C(sku) is the term, C(profile) the name of the profile, and C(known) tells whether the
      machine type has one, or something is expected of it by O(overrides). C(origin) is V(site) if the profile is the
      site's own. What is not known of a machine type is left out.
  type: list
  elements: dict
  sample:
    - sku: Standard_ND96asr_v4
      known: true
      profile: nd96asr_v4
      description: ND A100 v4, 8 A100 of 40 GB
      vm_size: Standard_ND96asr_v4
      vcpus: 96
      numa_nodes: 4
      threads_per_core: 1
      gpu:
        model: A100-SXM4-40GB
        count: 8
        memory_mib: 40536
        compute_capability: "8.0"
        max_clocks: {graphics: 1410, memory: 1215}
      topology:
        cpu: {arch: x86_64, vendor: AuthenticAMD, family: 23, model: 49}
        link: {speed: 16 GT/s, width: 16}
        bridge: numa_node
        gpus: [{pci_domain: "0001", numa_node: 1, nic: mlx5_ib0}]
      infiniband: {count: 8, rate_gbps: 200, devices: [mlx5_ib0], pci_domains: ["0101"]}
      nvme: {count: 8, controller: Microsoft NVMe Direct Disk}
      node:
        sysctl: {vm.zone_reclaim_mode: 1}
        transparent_hugepages: madvise
        services: [nvidia-fabricmanager]
        kernel_modules: [nvidia-peermem]
      nccl:
        topology_file: /opt/microsoft/ndv4-topo.xml
        conf: {NCCL_IGNORE_CPU_AFFINITY: "1"}
        environment: {CUDA_DEVICE_ORDER: PCI_BUS_ID}
        tests: {collectives: [all_reduce, alltoall], min_size: 8, max_size: 8589934592, factor: 2}
      slurm:
        gres: gpu:a100:8
        node: {sockets: 4, cores_per_socket: 24, threads_per_core: 1}
        slurmd_parameters: [numa_node_as_socket]
        gres_conf: [{name: gpu, type: a100, file: "/dev/nvidia[0-1]", cores: 24-47}]
      expect:
        - {check: gpu_bandwidth, metric: h2d, op: ">", value: 20, unit: GB/s, source: "how the value was found"}
        - {check: gpu_bandwidth, metric: h2d, op: ">=", value: 21, unit: GB/s, verdict: warn, source: "where it stands"}
"""

import typing as t
from pathlib import Path

from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.lookup.profile_dir import VARIABLE, directory, sources
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load, override


class LookupModule(LookupBase):
    """Returns the profile of each term."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[dict[str, t.Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        packed, place = self._of_the_site(variables) if variables else ({}, "")
        site = Path(place) if place else None
        try:
            return [override(load(str(term), site=site, packed=packed), self.get_option("overrides")) for term in terms]
        except (ValueError, OSError) as exc:
            raise AnsibleLookupError(f"sku_profile: {exc}") from exc

    def _of_the_site(self, variables: t.Any) -> tuple[dict[str, t.Any], str]:
        """Return the profiles that a node's bundle brought, or else the directory of the site's own."""
        packed = self._resolved("cluster_profiles", variables)
        return (packed, "") if packed else ({}, directory(self._resolved(VARIABLE, variables), sources(variables)))

    def _resolved(self, name: str, variables: t.Any) -> t.Any:
        """Return a variable of the inventory, or None; the lookup vars templates it rightly for every Ansible."""
        if name not in variables:
            return None
        return lookup_loader.get("vars", self._loader, self._templar).run([name], variables)[0]
