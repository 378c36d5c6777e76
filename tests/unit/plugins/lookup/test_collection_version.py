# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version is that of the collection that runs, installed or in a clone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.hpcai.gpu_cluster.plugins.lookup.collection_version import version


def test_the_version_is_that_of_the_manifest_and_without_one_of_galaxy_yml(tmp_path: Path) -> None:
    (tmp_path / "galaxy.yml").write_text("namespace: hpcai\nversion: 0.2.0\n")
    assert version(tmp_path) == "0.2.0"
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"collection_info": {"version": "0.1.0"}}))
    assert version(tmp_path) == "0.1.0"


@pytest.mark.parametrize("text", [None, "", "version", "{}", "[1]"])
def test_a_collection_that_does_not_say_it_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "MANIFEST.json").write_text(text)
    with pytest.raises(AnsibleLookupError, match="does not say which version"):
        version(tmp_path)
