# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import tarfile
import typing as t
from pathlib import Path

import pytest
from stand_in import answer

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _sources
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import azcopy, site
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

NEEDED: dict[str, t.Any] = {"azcopy": "/a", "destination": "https://x", "ingress_gbps": 20, "state_dir": "/s"}


def test_settings() -> None:
    assert site.site(NEEDED).layout == "shared"


def test_numbers_that_an_old_ansible_made_texts_of() -> None:
    found = site.site({**NEEDED, "ingress_gbps": "20.0", "node_gbps": "", "cores": "", "copies": "8", "settle": "0.5"})
    assert found.ingress_gbps == 20.0
    assert (found.node_gbps, found.cores, found.copies, found.settle) == (None, None, 8, 0.5)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"colour": 1}, "unknown names"),
        ({"identity": "me"}, "identity is 'me'"),
        ({"layout": "x"}, "layout is 'x'"),
        ({"ingress_gbps": ""}, "ingress_gbps is ''"),
        ({"copies": "many"}, "copies is 'many'"),
        ({"verify": "x"}, "verify is 'x'"),
        ({"identity": "sas", "credentials": "/c"}, "every user of the node"),
        ({"identity": "sas", "sas_on_command_line": True}, "needs credentials"),
        ({"identity": "service_principal"}, "needs credentials"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, t.Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        site.site({**NEEDED, **changes})


def test_settings_of_another_kind() -> None:
    with pytest.raises(CheckpointError, match="lack"):
        site.site({})
    with pytest.raises(CheckpointError, match="no dictionary"):
        site.site([])


def test_credentials(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("# of team a\nAZCOPY_SPA_APPLICATION_ID=1\n\nAZCOPY_SPA_CLIENT_SECRET=a=b\n")
    path.chmod(0o600)
    want = {"AZCOPY_SPA_APPLICATION_ID": "1", "AZCOPY_SPA_CLIENT_SECRET": "a=b"}
    assert site.credentials(str(path), os.geteuid()) == want
    assert site.credentials("", 0) == {}
    variables = site.variables(
        site.site({**NEEDED, "identity": "workload_identity"}), {**want, "SAS": "x"}, "/tmp/x", 10
    )
    assert variables["AZCOPY_AUTO_LOGIN_TYPE"] == "WORKLOAD" and variables["AZCOPY_CONCURRENCY_VALUE"] == "10"
    assert variables["AZCOPY_SPA_CLIENT_SECRET"] == "a=b" and "SAS" not in variables


@pytest.mark.parametrize(
    "text, mode, user, said",
    [
        ("SAS=x", 0o640, 0, "must belong to"),
        ("SAS=x", 0o600, 1, "must belong to"),
        ("PATH=x", 0o600, 0, "line 1"),
        ("\nsecret", 0o600, 0, "line 2"),
    ],
)
def test_credentials_that_are_refused(tmp_path: Path, text: str, mode: int, user: int, said: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(CheckpointError, match=said) as caught:
        site.credentials(str(path), os.geteuid() + user)
    assert "secret" not in str(caught.value) and "=x" not in str(caught.value)
    with pytest.raises(CheckpointError, match="cannot be read"):
        site.credentials(str(tmp_path / "nowhere"), 0)


def test_private_directory(tmp_path: Path) -> None:
    me, trusted = os.geteuid(), site.trusted_users()
    path = site.private(tmp_path, me, trusted)[0]
    assert path.stat().st_mode & 0o777 == 0o700 and site.private(tmp_path, me, trusted) == (path, "")
    assert site.own(path, tmp_path, me) == path
    for other in (tmp_path, tmp_path / "user-0-none", path / "user-0"):
        with pytest.raises(CheckpointError, match="alone"):
            site.own(other, tmp_path, me)
    path.chmod(0o755)
    with pytest.raises(CheckpointError, match="alone"):
        site.private(tmp_path, me, trusted)
    with pytest.raises(CheckpointError, match="cannot be made"):
        site.private(tmp_path / "nowhere", me, trusted)


def archive(
    tmp_path: Path, out: str, names: tuple[str, ...] = ("azcopy_linux_amd64_1/azcopy",), **values: t.Any
) -> tuple[str, str]:
    program = answer(tmp_path / "program", out, **values)
    path = tmp_path / "azcopy.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            tar.add(program, name)
    return str(path), _sources.sha256(path)


def test_install_uses_it_only_when_it_is_proved(tmp_path: Path) -> None:
    good, digest = archive(tmp_path, "azcopy version 10.1.0\n")
    pin = azcopy.AzcopyPin(tmp_path / "at", "10.1.0", digest)
    assert azcopy.state(pin) == (False, False)
    azcopy.install(pin, good)
    assert azcopy.state(pin) == (True, True) and pin.link.resolve() == pin.home / "azcopy"
    pin.link.unlink()
    assert azcopy.state(pin) == (True, False)
    azcopy.install(pin, "/nowhere")
    assert azcopy.state(pin) == (True, True)
    bad, other = archive(tmp_path, "azcopy version 10.2.0\n")
    for version, said in (("10.1.0", "not azcopy 10.1.0"), ("10.2.0", "not the source")):
        with pytest.raises(CheckpointError, match=said):
            azcopy.install(azcopy.AzcopyPin(tmp_path / "at", version, other if version == "10.1.0" else "0" * 64), bad)
    assert pin.link.resolve() == pin.home / "azcopy"
    assert sorted(path.name for path in pin.home.parent.iterdir()) == [".lock", pin.home.name]


@pytest.mark.parametrize(
    "err, status, names, message",
    [
        ("error while loading shared libraries: libsecret-1.so.0\n", 127, ("azcopy",), "libsecret-1-0"),
        ("", 3, ("azcopy",), "does not start"),
        ("", 0, ("a/azcopy", "b/azcopy"), "holds 2 programs"),
        ("", 0, ("README",), "holds 0 programs"),
    ],
)
def test_archives_of_no_use(tmp_path: Path, err: str, status: int, names: tuple[str, ...], message: str) -> None:
    path, digest = archive(tmp_path, "", names, err=err, status=status)
    with pytest.raises(CheckpointError, match=message):
        azcopy.install(azcopy.AzcopyPin(tmp_path / "at", "10.1.0", digest), path)


@pytest.mark.parametrize("version, digest, said", [("10.1", "0" * 64, "version"), ("10.1.0", "abc", "sha256")])
def test_pins_that_are_none(tmp_path: Path, version: str, digest: str, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        azcopy.check(azcopy.AzcopyPin(tmp_path, version, digest))
