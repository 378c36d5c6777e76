# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module node_tuning says of its findings, and when they fail it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_tuning


class Ended(Exception):
    """The module has returned."""


class Module:
    """An AnsibleModule that keeps what is said."""

    said: t.ClassVar[list[t.Any]] = []

    def __init__(self, strict: bool) -> None:
        self.params = {"strict": strict}
        Module.said = []

    def warn(self, text: str) -> None:
        self.said.append(text)

    def fail_json(self, **result: t.Any) -> t.NoReturn:
        self.said.append(result)
        raise Ended

    exit_json = fail_json


FINDINGS = [
    {"level": level, "about": level, "text": f"{level}: {number}"}
    for number, level in enumerate(("info", "warn", "error", "error"))
]


def run(monkeypatch: pytest.MonkeyPatch, strict: bool, findings: list[dict[str, str]]) -> list[t.Any]:
    monkeypatch.setattr(node_tuning, "AnsibleModule", lambda **dummy: Module(strict))
    monkeypatch.setattr(node_tuning, "perform", lambda dummy: {"changed": True, "findings": findings})
    with pytest.raises(Ended):
        node_tuning.main()
    return Module.said


def test_errors_fail_it_after_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    *warnings, result = run(monkeypatch, True, FINDINGS)
    assert warnings == ["warn: 1"]
    assert result == {"msg": "error: 2. error: 3", "changed": True, "findings": FINDINGS}


@pytest.mark.parametrize(("strict", "count"), [(False, 4), (True, 2)])
def test_all_but_remarks_are_said(monkeypatch: pytest.MonkeyPatch, strict: bool, count: int) -> None:
    *warnings, result = run(monkeypatch, strict, FINDINGS[:count])
    assert warnings == ["warn: 1", "error: 2", "error: 3"][: count - 1]
    assert result == {"changed": True, "findings": FINDINGS[:count]}
