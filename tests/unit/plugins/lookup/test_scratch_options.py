# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One place says what scratch has to be; it agrees with the role that makes it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.hpcai.gpu_cluster.plugins.lookup import scratch_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import SPEC

ROLE = Path(__file__).resolve().parents[4] / "roles/nvme_scratch"


def ask(profile: t.Any, **variables: t.Any) -> dict[str, t.Any]:
    loader = DataLoader()
    plugin = scratch_options.LookupModule(loader=loader, templar=Templar(loader=loader, variables=variables))
    (one,) = plugin.run([profile], variables)
    return one


def test_without_a_word_it_is_the_module_s_defaults_and_the_role_has_the_same() -> None:
    found = ask({})
    assert found == {name: SPEC[name].get("default", "" if name == "fallback" else []) for name in found}
    role = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    # Whatever else there is the role leaves to the module.
    plain = {name: role[f"nvme_scratch_{name}"] for name in found if f"nvme_scratch_{name}" in role}
    templated = {name for name, value in plain.items() if "{{" in str(value)}
    assert templated == {"fewer"}
    assert {name: found[name] for name in set(plain) - templated} == {n: plain[n] for n in set(plain) - templated}
    assert found["fewer"] == "refuse"


@pytest.mark.parametrize(("given", "models"), [("A disk", ["A disk"]), (["A", "B"], ["A", "B"])])
def test_the_profile_speaks_before_the_defaults_and_the_inventory_before_the_profile(
    given: t.Any, models: list[str]
) -> None:
    profile = {"nvme": {"count": 8, "controller": given, "fewer": "allow"}}
    assert (ask(profile)["models"], ask(profile)["fewer"]) == (models, "allow")
    found = ask(profile, nvme_scratch_models=["C"], nvme_scratch_unused=True, nvme_scratch_count=3)
    assert (found["models"], found["fewer"], found["unused"]) == (["C"], "allow", True)
    assert "count" not in found


@pytest.mark.parametrize("profile", [None, [], "x"])
def test_only_a_profile(profile: t.Any) -> None:
    with pytest.raises(AnsibleError, match="takes one profile"):
        ask(profile)


@pytest.mark.parametrize("profile", [{"nvme": None}, {"nvme": {"count": 0}}, {"profile": "generic"}])
def test_a_machine_without_disks_has_the_defaults(profile: t.Any) -> None:
    assert ask(profile) == ask({})
