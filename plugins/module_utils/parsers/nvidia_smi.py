# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi prints, of drivers R440 to R610: one function per form.

``parse_xml`` (-q -x), ``parse_query`` (-q), ``parse_csv`` (--query-gpu), ``parse_topo`` (topo -m, -p2p),
``parse_nvlink`` (nvlink -s), ``message`` (any complaint, with the GPU that it names) and ``status`` (what an exit
status means)::

    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi

    log = nvidia_smi.parse_xml(text)
    for run in log.runs:
        for gpu in run.gpus:
            print(gpu.bus_id, gpu.name, gpu.clocks.graphics_mhz, "MHz", gpu.ecc.volatile_uncorrected, "errors")
    if log.cause:
        print(log.cause.kind, log.cause.text)
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_nvlink import parse_nvlink
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_query import parse_query
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import parse_topo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_values import (
    THROTTLE_BITS,
    THROTTLE_FAULTS,
    Message,
    message,
    messages,
    status,
    throttle_names,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_xml import parse_xml

__all__ = [
    "THROTTLE_BITS",
    "THROTTLE_FAULTS",
    "Message",
    "message",
    "messages",
    "parse_csv",
    "parse_nvlink",
    "parse_query",
    "parse_topo",
    "parse_xml",
    "status",
    "throttle_names",
]
