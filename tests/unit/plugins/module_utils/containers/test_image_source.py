# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_store as source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import ImageError

SUM, OTHER = "a" * 64, "b" * 64
DIGEST, NEWER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
DOCKER = "docker://nvcr.io#nvidia/pytorch:26.01-py3"


def asked(where: str = DOCKER, **more: t.Any) -> source.ImageReference:
    return source.ImageReference(**{"name": "app", "source": where, **more})


KEPT = source.manifest(asked(), SUM, 100, DIGEST, "4.1.2")


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (DOCKER, "docker"),
        ("docker://user@ctl:5000#lab/app", "docker"),
        ("docker://ctl:5000/lab/app:1", "docker"),
        (f"docker://ctl:5000#lab/app@{DIGEST}", "docker"),
        ("docker://debian", "docker"),
        ("https://files.example.com/a.sqsh?sig=x", "url"),
        ("/srv/a.sqsh", "file"),
    ],
)
def test_sources_that_are_taken(where: str, kind: str) -> None:
    source.validate(asked(where, sha256=SUM))
    assert asked(where).kind == kind


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"where": "a.sqsh"}, "absolute path"),
        ({"where": "http://files.example.com/a.sqsh"}, "absolute path"),
        ({"where": "dockerd://app"}, "absolute path"),
        ({"where": ""}, "absolute path"),
        ({"where": "docker://user:password@ctl#app"}, "credentials file"),
        ({"where": "docker://ctl#app:1 2"}, "docker://"),
        ({"where": "docker://"}, "docker://"),
        ({"where": "https://user:word@files.example.com/a.sqsh"}, "URL holds a user"),
        ({"where": "/srv/a.sqsh", "sha256": ""}, "needs sha256"),
        ({"where": "https://files.example.com/a.sqsh?sig=x", "sha256": ""}, "needs sha256"),
        ({"sha256": "A" * 64}, "64 hexadecimal"),
        ({"sha256": "abc"}, "64 hexadecimal"),
        *[({"name": name}, "must be") for name in ("", "../x", "a/b", "a b", "A", ".a", "a.", "a.sqsh", "a" * 101)],
        ({"name": "app-0123456789ab"}, "looks like a version"),
    ],
)
def test_others_are_refused(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(ImageError, match=told) as caught:
        source.validate(asked(**{"sha256": SUM, **wrong}))
    assert "sig=" not in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")


def test_what_may_be_secret_is_not_kept() -> None:
    token = asked("https://files.example.com/a.sqsh?sig=secret", sha256=SUM)
    assert "secret" not in str(source.manifest(token, SUM, 1, "", ""))


@pytest.mark.parametrize(
    ("more", "kept", "wrong", "digest", "told"),
    [
        ({}, None, "", "", "it is not there"),
        ({}, KEPT, "", "", ""),
        ({}, KEPT, "has 3 bytes instead of 100", "", "app-aaaaaaaaaaaa.sqsh has 3 bytes instead of 100"),
        ({"sha256": OTHER}, KEPT, "", "", f"it has sha256 {SUM}"),
        ({"where": "docker://ctl#other"}, KEPT, "", "", f"it came from {DOCKER}"),
        ({"squash_options": "-comp zstd"}, KEPT, "", "", "it was squashed with what enroot.conf says"),
        ({"pull": "check"}, KEPT, "", NEWER, ""),
        ({"pull": "always"}, KEPT, "", DIGEST, ""),
        ({"pull": "always"}, KEPT, "", "", ""),
        ({"pull": "always"}, KEPT, "", NEWER, f"the tag moved from {DIGEST} to {NEWER}"),
        ({"where": "/elsewhere/a.sqsh", "sha256": SUM}, KEPT, "", "", ""),
    ],
)
def test_why_an_image_is_had_anew(
    more: dict[str, str], kept: dict[str, t.Any] | None, wrong: str, digest: str, told: str
) -> None:
    assert source.stale(asked(**more), kept, wrong, digest) == told


def test_a_tag_that_moved_is_told() -> None:
    assert source.moved(KEPT, NEWER) == {"from": DIGEST, "to": NEWER}
    assert source.moved(KEPT, DIGEST) is None
    assert source.moved(KEPT, "") is None
    assert source.moved(None, NEWER) is None
    assert source.moved({**KEPT, "digest": ""}, NEWER) is None


@pytest.mark.parametrize(
    ("more", "digest", "same"),
    [
        ({}, DIGEST, True),
        ({}, NEWER, False),
        ({}, "", False),
        ({"squash_options": "-noI"}, DIGEST, False),
        ({"sha256": OTHER}, DIGEST, False),
        ({"where": "/srv/a.sqsh", "sha256": SUM}, "", True),
        ({"where": "/srv/a.sqsh", "sha256": OTHER}, "", False),
    ],
)
def test_old_versions_are_used_again(more: dict[str, str], digest: str, same: bool) -> None:
    assert source.same(asked(**more), KEPT, digest) is same


def test_what_is_imported_is_what_the_tag_meant() -> None:
    assert source.reference(asked(), DIGEST) == f"{DOCKER}@{DIGEST}"
    assert source.reference(asked(), "") == DOCKER
    pinned = asked(f"docker://ctl#app:1@{DIGEST}")
    assert pinned.pinned == DIGEST
    assert source.reference(pinned, DIGEST) == pinned.source


@pytest.mark.parametrize(("said", "found"), [(f"{DIGEST}\n", DIGEST), ("", ""), ("sha256:12\n", ""), ("usage", "")])
def test_digest_of_enroot(said: str, found: str) -> None:
    assert source.digest_of(said) == found
