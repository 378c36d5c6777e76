# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of repositories: only the expected one is taken, and nothing that comes along with it."""

from __future__ import annotations

import base64
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver import repository

# Made by gpg 2.2.40 for this test, with the fingerprint that gpg shows.
KEY = b"""\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawPHHxYJKwYBBAHaRw8BAQdAtrTH0cGkajrEdw3rLYcHTYFsZCpb99nAPJO0
y1ThfQq0KHRlc3QgcmVwb3NpdG9yeSA8cmVwb3NpdG9yeUBleGFtcGxlLmNvbT6I
kAQTFggAOBYhBCkf+CULDM5j3GoAvh27sfzAQvMIBQJrA8cfAhsDBQsJCAcCBhUK
CQgLAgQWAgMBAh4BAheAAAoJEB27sfzAQvMIyt4BAKtGO/SfP11ZXpEWfp+Zrg+B
qsCHoGhAhbxQ9VP6yI+/AP9J7KMLqN6QdPcFuamncmuUJ5cJsNN9QNW/eV/67ybj
Dg==
=x+x4
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "291FF8250B0CCE63DC6A00BE1DBBB1FCC042F308"
OTHER = "EB693B3035CD5710E231E123A4B469963BF863CC"
RAW = repository.dearmour(KEY)
# A key packet of version 4 that is somebody else's: the same with another point.
STRANGE = RAW[:20] + bytes([RAW[20] ^ 1]) + RAW[21:]


def test_a_fingerprint_is_what_gpg_shows() -> None:
    assert repository.proved_keys(KEY, [FINGERPRINT]) == RAW
    assert repository.proved_keys(RAW, [FINGERPRINT]) == RAW


def test_the_expected_key_is_taken_however_its_fingerprint_is_written() -> None:
    spaced = " ".join(FINGERPRINT[at : at + 4] for at in range(0, 40, 4)).lower()
    assert repository.proved_keys(KEY, [spaced]) == RAW
    assert repository.proved_keys(KEY.replace(b"\n", b"\r\n"), [OTHER, FINGERPRINT]) == RAW


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (KEY + KEY.replace(base64.b64encode(RAW)[:60], base64.b64encode(STRANGE)[:60]), "holds the key"),
        (RAW + STRANGE, "holds the key"),
        (STRANGE, "holds the key"),
        (b"<html>not found</html>", "no OpenPGP key"),
        (b"", "no public key"),
        (RAW[:-10], "cut short"),
        (RAW[53:], "no public key"),  # a name without a key
        (KEY.replace(b"mDME", b"m*ME"), "cannot be decoded"),
    ],
)
def test_any_other_key_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(repository.KeyFault, match=text):
        repository.proved_keys(content, [FINGERPRINT])


@pytest.mark.parametrize("expected", [[], ["3BF863CC"], ["A4B469963BF863CC"], ["x" * 40]])
def test_a_short_id_is_no_fingerprint(expected: list[str]) -> None:
    with pytest.raises(repository.KeyFault, match="40 hexadecimal digits"):
        repository.proved_keys(KEY, expected)


class Module:
    check_mode = False

    def set_fs_attributes_if_different(self, file_args: dict[str, t.Any], changed: bool) -> bool:
        return changed


URL = "https://packages.example.com/cuda/"


def params(root: Path, **more: t.Any) -> dict[str, t.Any]:
    given = {"name": "nvidia-cuda", "manager": "apt", "url": URL, "key": f"{URL}key", "fingerprints": [FINGERPRINT]}
    defaults = {"state": "present", "suite": "/", "components": [], "root": str(root)}
    return {**defaults, **given, **more}


def test_a_repository_is_added_once_and_taken_away(tmp_path: Path) -> None:
    fetched: list[str] = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return KEY

    module = Module()
    module.check_mode = True
    assert repository.perform(module, params(tmp_path), fetch)["changed"]
    assert not list(tmp_path.rglob("*"))
    assert not fetched
    module.check_mode = False
    assert repository.perform(module, params(tmp_path), fetch)["changed"]
    source = tmp_path / "etc/apt/sources.list.d/hpcai-nvidia-cuda.list"
    line = f"deb [signed-by={tmp_path}/etc/apt/keyrings/hpcai-nvidia-cuda.gpg] {URL} /"
    assert source.read_text().splitlines()[1:] == [line]
    assert (tmp_path / "etc/apt/keyrings/hpcai-nvidia-cuda.gpg").read_bytes() == RAW
    assert not repository.perform(module, params(tmp_path), fetch)["changed"]
    assert fetched == [f"{URL}key"]
    assert repository.perform(module, params(tmp_path, state="absent"), fetch)["changed"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_key_that_was_exchanged_on_the_host_is_fetched_again(tmp_path: Path) -> None:
    repository.perform(Module(), params(tmp_path), lambda dummy: KEY)
    key = tmp_path / "etc/apt/keyrings/hpcai-nvidia-cuda.gpg"
    key.write_bytes(RAW + STRANGE)
    assert repository.perform(Module(), params(tmp_path), lambda dummy: KEY)["changed"]
    assert key.read_bytes() == RAW


def test_a_repository_with_another_key_is_not_added(tmp_path: Path) -> None:
    with pytest.raises(repository.RepositoryError, match=f"{URL}key was not taken: it holds the key {FINGERPRINT}"):
        repository.perform(Module(), params(tmp_path, fingerprints=[OTHER]), lambda dummy: KEY)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("cuda.list", f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {URL} /"),
        ("cuda.sources", f"URIs: {URL.rstrip('/')}"),
    ],
)
def test_a_repository_that_somebody_added_is_left_to_them(tmp_path: Path, file: str, line: str) -> None:
    place = tmp_path / "etc/apt/sources.list.d" / file
    place.parent.mkdir(parents=True)
    place.write_text(f"{line}\n")
    result = repository.perform(Module(), params(tmp_path), lambda dummy: KEY)
    assert (result["changed"], result["elsewhere"]) == (False, [f"/etc/apt/sources.list.d/{file}"])
    place.write_text(f"# {line}\n")
    assert repository.perform(Module(), params(tmp_path), lambda dummy: KEY)["changed"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"url": "packages.example.com"}, "no address of a repository"),
        ({"url": "https://packages.example.com/ [trusted=yes]"}, "no address"),
        ({"suite": "/ extra"}, "no suite"),
        ({"name": "../x"}, "lower case letters"),
        ({"fingerprints": []}, "fingerprints of the repository nvidia-cuda is needed"),
    ],
)
def test_a_description_that_apt_would_read_otherwise_is_refused(
    tmp_path: Path, more: dict[str, t.Any], text: str
) -> None:
    with pytest.raises(repository.RepositoryError, match=text):
        repository.perform(Module(), params(tmp_path, **more), lambda dummy: KEY)


def test_a_repository_of_dnf_checks_its_packages(tmp_path: Path) -> None:
    repository.perform(Module(), params(tmp_path, manager="dnf"), lambda dummy: KEY)
    text = (tmp_path / "etc/yum.repos.d/hpcai-nvidia-cuda.repo").read_text()
    assert f"gpgcheck=1\ngpgkey=file://{tmp_path}/etc/pki/rpm-gpg/RPM-GPG-KEY-hpcai-nvidia-cuda\n" in text
    assert (tmp_path / "etc/pki/rpm-gpg/RPM-GPG-KEY-hpcai-nvidia-cuda").read_bytes() == KEY
