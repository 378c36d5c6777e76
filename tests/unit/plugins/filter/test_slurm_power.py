# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.slurm_power import slurm_power_files


def test_each_group_has_user_data_of_its_own_or_that_of_all() -> None:
    groups = [{"nodes": "gpu-[1-2]"}, {"nodes": "gpu-3", "machine": {"type": "a"}, "user_data": "#!/bin/sh\n# own\n"}]
    result = slurm_power_files(groups, "/p", "#!/bin/sh\n")
    assert result["groups"] == [
        {"nodes": "gpu-[1-2]", "machine": {}, "user_data": "/p/user-data-1"},
        {"nodes": "gpu-3", "machine": {"type": "a"}, "user_data": "/p/user-data-2"},
    ]
    assert [file["content"] for file in result["user_data"]] == ["#!/bin/sh\n", "#!/bin/sh\n# own\n"]
    assert {(file["owner"], file["mode"], file["diff"]) for file in result["user_data"]} == {("slurm", "0440", False)}
    assert result["secrets"] == []


def test_secret_files_are_for_slurms_user_alone() -> None:
    (file,) = slurm_power_files([], "/p", "", [{"path": "/p/key", "content": "clé"}])["secrets"]
    assert base64.b64decode(file.pop("secret")).decode() == "clé"
    assert file == {"path": "/p/key", "owner": "slurm", "mode": "0400"}


@pytest.mark.parametrize("odd", ["gpu-1", [{}], ["gpu-1"]])
def test_what_is_no_list_of_groups_is_refused(odd: object) -> None:
    with pytest.raises(AnsibleFilterError, match="list of groups"):
        slurm_power_files(odd, "/p")
