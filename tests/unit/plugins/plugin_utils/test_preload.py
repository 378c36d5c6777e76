# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is loaded before the first worker is forked."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.plugins import loader

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _preload

LOOKUPS = Path(__file__).resolve().parents[4] / "plugins/lookup"


@pytest.mark.parametrize("kind", _preload.PLUGINS)
def test_every_plugin_exists(kind: str) -> None:
    for name in _preload.PLUGINS[kind]:
        own = name.rpartition("hpcai.gpu_cluster.")[2]
        assert (LOOKUPS / f"{own}.py").is_file() if own != name else getattr(loader, kind).get(name, class_only=True)


def test_what_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "shell_loader", None)
    monkeypatch.setattr(loader, "filter_loader", None)
    _preload.preload()
