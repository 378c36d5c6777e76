# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/sku_profiles.md: ``PYTHONPATH=.build/collections .build/venv/bin/python tests/tools/sku_profiles.py``."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles as profiles
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._agent_metrics import AGENT
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_metrics import CHECKS

PAGE = Path(__file__).resolve().parents[2] / "docs/sku_profiles.md"
Row = t.Sequence[str]
INTRODUCTION = """\
<!-- Written by tests/tools/sku_profiles.py from plugins/plugin_utils/profiles/. Change those and run it. -->
# What is expected of a machine

One file per machine type in `plugins/plugin_utils/profiles/` holds all that is particular to it: what it is, where its
GPUs are, which environment NCCL wants, and which numbers a sound one reaches. The lookup
`hpcai.gpu_cluster.sku_profile` returns it, with or without Azure's prefix `Standard_` and in any case. A machine type
without a file gets `generic`, which expects nothing: its measurements stay `unjudged`, they never pass.

Machines of NVIDIA and of clouds are here by name (`dgx_h100`, `p5.48xlarge`, `a3-highgpu-8g`), servers of other makers
by their GPU board (`hgx_h100`, `l40s_x8`): of those nothing is known but the GPUs. Limits of another machine with the
same GPUs say so in their source, and warn where the machine around the GPUs takes part in the number.

A number stands here only with a source. What no source limits is not judged, and each machine type says what that is.

- A machine that misses a `fail` is taken out of service; after a `warn` it stays, and the report shows it.
- Sizes are bytes per collective. "1 node" and "2 or more nodes" say over how many nodes the number holds.
- Bandwidths are decimal (GB/s, Gb/s).

## A site's own profile

A machine that is not here, or is not as it is here, gets a file of the same kind beside the inventory:
`profiles/<machine type>.yml` in the inventory's directory, or in the directory that `cluster_profile_dir` names. It
wins over the shipped profile of that name. `base` names what it lies over: any profile of this page, a part (`_nvidia`,
`_h100_sxm`, …) or another file of the site.

```yaml
# inventories/ours/profiles/r760xa.yml, with cluster_sku: r760xa
base: hgx_h100
description: Our servers, 8 H100
vcpus: 128
infiniband: {count: 8, rate_gbps: 400}
nvme: {count: 4, controller: SAMSUNG MZQL23T8HCLS-00A07}
expect:
  - {check: gpu_bandwidth, metric: h2d, op: ">=", value: 50, unit: GB/s, source: "acceptance test of our cluster"}
```

Ansible takes every file below a directory that is given as inventory (`-i inventories/ours`) for hosts, this one too,
and warns. `ignore_patterns = ^profiles$` below `[inventory]` in `ansible.cfg` keeps it off; the clone's and the
template's have it.

The preflight refuses what is wrong in it, with the file, the path of the value and what is accepted. Everything that
reads a profile reads this one: measurements, the node agent, certification, the roles, the bundle of nodes that
configure themselves.

`draft_profile.yml` writes such a file from what `measure.yml` measured on sound nodes: counts as they are, speeds with
a margin, each marked as measured here with day, node and tool. Read it before nodes are judged by it.

```console
$ ansible-playbook -i inventory hpcai.gpu_cluster.measure
$ ansible-playbook -i inventory hpcai.gpu_cluster.draft_profile -e draft_profile_name=r760xa
```

## A site's own numbers

What a site says in `certification_profile_overrides` lies over the profile: mappings (`gpu`, `nccl`,
`nccl.environment`) are merged key by key, lists and values are replaced, null takes a key away. Expectations are merged
one by one: one for the same check, metric, labels (collective, size), node count and verdict replaces the shipped one,
any other is added, and `value: null` takes one away, so that the metric is no longer judged.

```yaml
certification_profile_overrides:
  nccl: {environment: {NCCL_DEBUG: INFO, UCX_TLS: null}}
  expect:
    - {check: gpu_bandwidth, metric: h2d, op: ">=", value: 24, unit: GB/s, source: "acceptance test of our cluster"}
    - {check: hpl, metric: tflops, nodes: 1, verdict: warn, value: null}
```
"""


def names() -> list[str]:
    return sorted(path.stem for path in profiles.DIRECTORY.glob("[!_]*.yml"))


def table(head: Row, rows: t.Iterable[Row]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return [*lines, ""]


def size(count: int) -> str:
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count % step == 0:
            return f"{count // step} {unit}"
    return f"{count} B"


def where(one: t.Mapping[str, t.Any]) -> str:
    """Say for what a number holds."""
    parts = [str(one["collective"])] if one.get("collective") else []
    parts += [size(one["size"])] if one.get("size") else []
    if one.get("nodes"):
        parts.append(f"{one['nodes']} node{'s' if one['nodes'] > 1 else ''}")
    if one.get("min_nodes"):
        parts.append(f"{one['min_nodes']} or more nodes")
    return ", ".join(parts)


def expectations(profile: t.Mapping[str, t.Any]) -> t.Iterator[Row]:
    """One row per expectation, in the order of the checks."""
    order = {(check, name): i for i, (check, name) in enumerate(every_metric())}
    for one in sorted(profile["expect"], key=lambda one: order[one["check"], one["metric"]]):
        limit = f"{one['op']} {one['value']} {one['unit']}"
        yield f"`{one['check']}`", one["metric"], where(one), limit, one.get("verdict", "fail"), one["source"]


def every_metric() -> t.Iterator[tuple[str, str]]:
    for check, known in CHECKS.items():
        for name in known.metrics:
            yield check, name


def unjudged(profile: t.Mapping[str, t.Any]) -> str:
    """Name what is measured of GPUs, ports and disks and limited by no source; the agent has limits of its own."""
    judged = {(one["check"], one["metric"]) for one in profile["expect"]}
    absent = {"node_checks", "collective_test", "certification"}
    if profile.get("infiniband", {}).get("count") == 0:
        absent |= {"infiniband_info", "infiniband_bandwidth"}
    missing: dict[str, list[str]] = {}
    for check, name in every_metric():
        if check not in AGENT and CHECKS[check].module not in absent and (check, name) not in judged:
            missing.setdefault(check, []).append(name)
    return "; ".join(f"`{check}` {', '.join(found)}" for check, found in missing.items())


def machine(profile: t.Mapping[str, t.Any]) -> t.Iterator[Row]:
    gpu, clocks = profile.get("gpu", {}), profile.get("gpu", {}).get("max_clocks")
    facts = {
        "VM size": profile.get("vm_size"),
        "vCPUs": profile.get("vcpus"),
        "NUMA nodes": profile.get("numa_nodes"),
        "GPUs": f"{gpu['count']} x {gpu['model']}" if gpu.get("count") else None,
        "GPU memory": f"{gpu['memory_mib']} MiB" if gpu.get("memory_mib") else None,
        "Highest clocks": f"graphics {clocks['graphics']} MHz, memory {clocks['memory']} MHz" if clocks else None,
        "InfiniBand": "{count} x {rate_gbps} Gb/s".format(**profile["infiniband"])
        if profile.get("infiniband", {}).get("count")
        else None,
        "NVMe": disks(profile.get("nvme") or {}),
        "NCCL topology file": profile.get("nccl", {}).get("topology_file"),
        **tuning(profile),
    }
    for name, fact in facts.items():
        if fact is not None:
            yield name, str(fact)


def disks(nvme: t.Mapping[str, t.Any]) -> str | None:
    if not nvme.get("count"):
        return None
    parts = [f"{nvme['size_gb']} GB" if nvme.get("size_gb") else "", nvme.get("controller") or ""]
    return f"{nvme['count']} x {', '.join(part for part in parts if part)}"


def tuning(profile: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """What the role node_tuning takes from a profile."""
    node, conf = profile.get("node", {}), profile.get("nccl", {}).get("conf", {})
    return {
        "NCCL on every node": ", ".join(f"`{name}={value}`" for name, value in conf.items()) or None,
        "Kernel parameters": ", ".join(f"`{name} = {value}`" for name, value in node.get("sysctl", {}).items()) or None,
        "Transparent huge pages": node.get("transparent_hugepages"),
        "Services": ", ".join(node.get("services", [])) or None,
        "Kernel modules": ", ".join(node.get("kernel_modules", [])) or None,
    }


def places(profile: t.Mapping[str, t.Any]) -> list[str]:
    gpus = profile.get("topology", {}).get("gpus", [])
    if not gpus:
        return []
    ports = profile.get("infiniband", {})
    domains = dict(zip(ports.get("devices", []), ports.get("pci_domains", []), strict=False))
    nics = [f"{g['nic']} ({domains[g['nic']]})" if g["nic"] else "" for g in gpus]
    rows = [[str(i), g["pci_domain"], str(g["numa_node"]), nics[i]] for i, g in enumerate(gpus)]
    return table(["GPU", "PCI domain", "NUMA node", "Network adapter (PCI domain)"], rows)


def section(name: str) -> list[str]:
    profile = profiles.load(name)
    lines = [f"## {name}", "", f"{profile['description']}.", ""]
    facts = list(machine(profile))
    lines += table(["", ""], facts) if facts else []
    lines += places(profile)
    rows = list(expectations(profile))
    if not rows:
        return [*lines, "Nothing is expected of it.", ""]
    lines += table(["Check", "Metric", "For", "Expected", "Missed", "Source"], rows)
    if profile.get("gpu", {}).get("count"):
        lines += [f"Not judged, because no source gives a limit: {unjudged(profile)}.", ""]
    return lines


def render() -> str:
    lines = ["## What can be expected", ""]
    head = ["Check", "Metric", "Unit", "For each", "Meaning", "Measured by"]
    lines += table(
        head,
        [
            [f"`{check}`", name, metric.unit, metric.labels, metric.meaning, f"`{known.module}`"]
            for check, known in CHECKS.items()
            for name, metric in known.metrics.items()
        ],
    )
    for name in names():
        lines += section(name)
    return f"{INTRODUCTION}\n" + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
