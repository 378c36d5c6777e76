# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No package is named for the RHEL 9 family that was not seen in a public source: nothing here can install one."""

from __future__ import annotations

import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools_recipe

ROOT = Path(__file__).resolve().parents[3]
ROLE, TOOLS = ROOT / "roles/nvidia_driver", ROOT / "roles/gpu_test_tools"
SEEN = yaml.safe_load((ROOT / "tests/unit/fixtures/packages/el9.yml").read_text())


def rendered(value: t.Any, **variables: object) -> t.Any:
    return jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined).from_string(value).render(variables)


def tools() -> dict[str, list[str]]:
    """Return the packages that role gpu_test_tools installs by apt and by dnf."""
    return yaml.safe_load((TOOLS / "vars/main.yml").read_text())["__gpu_test_tools_packages"]


def named() -> tuple[set[str], set[str]]:
    """Return the packages and the module's streams that the role nvidia_driver names for dnf."""
    role = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    catalog = role["__nvidia_driver_catalogs"]["nvidia"]["RHEL"]
    streams = set(catalog.pop("streams").values())
    names = set(catalog.pop("headers"))
    names.update(name for lists in catalog.values() for alternatives in lists for name in alternatives)
    names.update(role["__nvidia_driver_container_packages"], role["__nvidia_driver_lock_packages"])
    names.update(name for kinds in role["__nvidia_driver_rdma_packages"].values() for name in kinds["dnf"])
    for branch in ("570", "580"):
        names.update(rendered(name, __nvidia_driver_branch=branch) for name in defaults["nvidia_driver_dcgm_packages"])
    return names, streams


def test_each_name_was_seen_in_a_source_and_none_is_kept_that_no_role_has() -> None:
    names, streams = named()
    # A site names its CUDA toolkits; the role makes a package's name of them. NCCL is for a site to name, too.
    assert names | {*tools()["dnf"], "cuda-toolkit-13-0", "libnccl-devel"} == set(SEEN["packages"])
    assert streams == set(SEEN["streams"])


@pytest.mark.parametrize("part", ["packages", "streams"])
def test_each_source_is_told(part: str) -> None:
    assert set(SEEN[part].values()) <= set(SEEN["sources"])


@pytest.mark.parametrize(("family", "manager"), [("Debian", "apt"), ("RedHat", "dnf")])
def test_a_build_takes_what_each_package_manager_calls_its_needs(family: str, manager: str) -> None:
    defaults = yaml.safe_load((TOOLS / "defaults/main.yml").read_text())
    facts: dict[str, t.Any] = {"ansible_facts": {"os_family": family}, "__gpu_test_tools_packages": tools()}
    assert rendered(defaults["gpu_test_tools_packages"], **facts) == str(tools()[manager])
    homes = {"cuda_home": "/none", "nccl_home": "/none", "mpi_home": "/none"}
    for need in test_tools_recipe.read(homes, {"make", "c++", "cmake", "boost"}).values():
        assert len(set(need.packages) & set(tools()[manager])) == 1, need
