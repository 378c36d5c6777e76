# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passwords for registries among those that users have themselves."""

from __future__ import annotations

import getpass

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_config as credentials
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.enroot_config import (
    CredentialEntry,
    CredentialsError,
)

OWN = "machine own.example login me password mine\n"
NGC = CredentialEntry("trainer", "nvcr.io", "$oauthtoken", "key")


def test_a_line_comes_changes_and_goes_and_others_stay() -> None:
    first = credentials.merge(OWN, [NGC])
    assert first == f"{OWN}machine nvcr.io login $oauthtoken password key\n"
    assert credentials.merge(first, [NGC]) == first
    assert credentials.merge(first, [NGC._replace(password="new")]) == first.replace("key", "new")
    assert credentials.merge(first, [NGC._replace(password="")]) == OWN
    assert credentials.merge(first + first, [NGC]).count("nvcr.io") == 1
    assert credentials.merge("", [NGC._replace(password="")]) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": "ctl:5000"}, "without its port"),
        ({"login": "a b"}, "has spaces"),
        ({"login": ""}, "is empty"),
        ({"password": "a b-secret"}, "has spaces"),
        ({"password": "a\nmachine x"}, "has spaces"),
    ],
)
def test_what_enroot_would_not_find_is_refused_without_telling_it(change: dict[str, str], said: str) -> None:
    with pytest.raises(CredentialsError, match=said) as caught:
        credentials.merge("", [NGC._replace(**change)])
    assert "secret" not in str(caught.value)


def test_files_are_in_homes() -> None:
    assert credentials.path(getpass.getuser()).endswith("/.config/enroot/.credentials")
    with pytest.raises(CredentialsError, match="no user nobody-here"):
        credentials.path("nobody-here")


def test_they_are_read_and_written_as_the_user_and_over_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(argv: list[str], timeout: float, data: str | None = None) -> _process.Outcome:
        seen.append((argv, data))
        return answers.pop(0)

    monkeypatch.setattr(credentials, "run", run)
    answers = [_process.Outcome(0, f"640\n{OWN}", "", 0.0), _process.Outcome(0, "none\n", "", 0.0)]
    answers += [_process.Outcome(0, "", "", 0.0), *[_process.Outcome(1, "", "Permission denied", 0.0)] * 2]
    assert credentials.read("trainer", "/h/c") == ("640", OWN)
    assert credentials.read("trainer", "/h/c") == ("", "")
    credentials.write("trainer", "/h/c", "machine a login b password s3cret\n")
    assert all(argv[:3] == ["runuser", "-u", "trainer"] and "s3cret" not in " ".join(argv) for argv, dummy in seen)
    assert seen[-1][1] == "machine a login b password s3cret\n"
    with pytest.raises(CredentialsError, match="cannot read /h/c: exit status 1: Permission denied"):
        credentials.read("trainer", "/h/c")
    with pytest.raises(CredentialsError, match="cannot write"):
        credentials.write("trainer", "/h/c", "s3cret")
