# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/static as it is copied: the preflight takes it, and names what was changed wrongly.

The hosts do not exist; a connection plugin says what their facts would be, and refuses all else.
"""

from __future__ import annotations

import json
import os
import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ("head-01", "gpu-01", "gpu-02")
FACTS = {
    "distribution": "Ubuntu",
    "distribution_version": "24.04",
    "memtotal_mb": 2_000_000,
    "processor_cores": 56,
    "processor_count": 2,
    "processor_threads_per_core": 2,
}
TAKEN = "The inventory can become a working cluster"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a copy, whose machines answer the first question of a run and refuse all else."""
    place = tmp_path / "site"
    shutil.copytree(ROOT / "inventories/static", place)
    (place / "host_vars").mkdir()
    for number, host in enumerate(HOSTS, start=2):
        known = {"ansible_host": f"127.0.0.{number}", "ansible_connection": "known"}
        text = json.dumps({**known, "ansible_python_interpreter": interpreter()})
        (place / "host_vars" / f"{host}.yml").write_text(text, encoding="utf-8")
    return place


def change(site: Path, old: str, new: str) -> None:
    path = site / "group_vars/all.yml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def configure(site: Path) -> str:
    facts = site.parent / "facts.json"
    facts.write_text(json.dumps({host: {**FACTS, "hostname": host} for host in HOSTS}), encoding="utf-8")
    environment: dict[str, t.Any] = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection_plugins"),
        "HPCAI_REPORT_DIR": str(site.parent / "report"),
        "ANSIBLE_HOST_PATTERN_MISMATCH": "warning",
        "ANSIBLE_NOCOLOR": "1",
        "KNOWN_FACTS": str(facts),
    }
    done = ansible_playbook("-i", site, ROOT / "playbooks/configure.yml", cwd=ROOT, env=environment)
    return done.stdout + done.stderr


def test_the_copy_is_taken_as_it_is(site: Path) -> None:
    text = configure(site)
    assert TAKEN in text and "Nothing was changed" not in text, text


def test_a_machine_type_of_the_site_is_taken(site: Path) -> None:
    change(site, "cluster_sku: dgx_h100", "cluster_sku: ours")
    (site / "profiles").mkdir()
    (site / "profiles/ours.yml").write_text("{base: l40s_x8, vcpus: 128}\n", encoding="utf-8")
    text = configure(site)
    assert TAKEN in text, text
    assert "valid group definition" not in text and "as an inventory source" not in text, "a profile was read as hosts"


def test_what_was_changed_wrongly_is_named_before_anything_is_changed(site: Path) -> None:
    change(site, "cluster_sku: dgx_h100", "cluster_sku: DGX-H100")
    change(site, "cluster_health_check: true", "cluster_healthcheck: true")
    text = configure(site)
    assert TAKEN not in text and "Nothing was changed" in text, text
    assert "no such machine type" in text and "dgx_h100" in text
    assert "cluster_healthcheck" in text and "accepted: cluster_health_check" in text
