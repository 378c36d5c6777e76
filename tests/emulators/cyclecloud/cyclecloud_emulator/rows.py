# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that are made of other state: nodes, clusters, accounts, machine types."""

from __future__ import annotations

import typing as t
from pathlib import Path

from . import limits, machine, template
from .accounts import SECRET
from .store import Json, Store


def builtin_template(store: Store) -> str:
    """The name of the template of the newest Slurm project that came with the server."""
    return f"slurm_template_{store.state['settings']['projects']['slurm'][0]}"


def builtin() -> str:
    """The template that comes with CycleCloud."""
    return (Path(__file__).parent / "slurm.txt").read_text()


def rows(store: Store) -> t.Callable[[str], list[Json]]:
    """Records that are made of other state: nodes, clusters, accounts, machine types."""

    def find(kind: str) -> list[Json]:
        made = {
            "Cloud.Node": lambda: [n for c in store.state["clusters"].values() for n in c["nodes"].values()],
            "Cloud.Cluster": lambda: [_cluster_row(one) for one in store.state["clusters"].values()],
            "Cloud.ProviderAccount": lambda: list(store.state["accounts"].values()),
            "Cloud.ClusterParameter": lambda: _parameter_rows(store),
            "Cloud.MachineType": lambda: _types(store, limits.WORKED),
            "Azure.MachineType": lambda: _types(store, 0),
            "Cloud.Project": lambda: own_projects(store),
            "Application.Timer": lambda: [{"Name": "plugin.azure.monitor_reference"}],
        }.get(kind)
        found = made() if made else []
        return [{"AdType": kind, **{key: value for key, value in one.items() if key != SECRET}} for one in found]

    return find


def _cluster_row(one: Json) -> Json:
    return {"Name": one["name"], "ClusterName": one["name"], "State": machine.state(one), "TargetState": one["target"]}


def _parameter_rows(store: Store) -> list[Json]:
    clusters = store.state["clusters"].values()
    return [
        {"ClusterName": one["name"], "Name": name, "Value": value}
        for one in clusters
        for name, value in one["parameters"].items()
    ] + [
        {
            "ClusterName": builtin_template(store),
            "Name": name,
            "ParameterType": declared.get("ParameterType"),
            "DefaultValue": template.plain(declared.get("DefaultValue")),
        }
        for name, declared in template.declared(template.parse(builtin())).items()
    ]


def own_projects(store: Store) -> list[Json]:
    """Records of the projects that came with the server."""
    return [
        {"Name": name, "Version": version, "Url": f"https://github.com/Azure/cyclecloud-{name}/releases/{version}"}
        for name, versions in store.state["settings"]["projects"].items()
        for version in versions
    ]


def _types(store: Store, later: float) -> list[Json]:
    """They come some time after an account, or when their timer is run, one by one; those worked up come later."""
    found = []
    for account in store.state["accounts"].values():
        for name, one in limits.CATALOG["machine_types"].items():
            if limits.come(store, account, name) + later > store.now():
                continue
            gpus = 0 if name in store.state["settings"]["gpu_count_zero"] else one["gpuCount"]
            found.append(
                {
                    "Name": name,
                    "Provider": "azure",
                    "Location": account.get("Location") or "",
                    "AccountName": account["Name"],
                    "CoreCount": one["vcpuCount"],
                    "GPUCount": gpus,
                    "Memory": one["memory"],
                    "Family": one["family"],
                }
            )
    return found
