# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError, Sums

FIXTURES = Path(__file__).parents[3] / "fixtures/azcopy"
ACCOUNT = "https://account.blob.core.windows.net"


def captured(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


def test_listing_of_azcopy() -> None:
    found = files.listing(captured("list"))
    assert found["a.pt"] == files.Blob(30000000, "5fbdf735310cb91478ad26ae5bcca2bd")
    assert files.listing(captured("list-empty")) == {}
    assert files.listing("noise\n[]\n1\n") == {}


@pytest.mark.parametrize(
    "text", ["{}", '{"Path": "a"}', '{"Path": "a", "ContentLength": "x"}', "[]", '{"ContentMD5":"?"}']
)
def test_listing_that_cannot_be_read(text: str) -> None:
    line = json.dumps({"MessageType": "ListObject", "MessageContent": text})
    with pytest.raises(CheckpointError, match="listed a blob as"):
        files.listing(line)


@pytest.mark.parametrize(
    "name, finished, problem",
    [
        ("copy", True, None),
        ("copy-refused", False, "the service answered 400"),
        ("list-no-container", False, "404 The specified container does not exist., ContainerNotFound"),
        ("copy-killed", False, None),
    ],
)
def test_how_azcopy_ended(name: str, finished: bool, problem: str | None) -> None:
    assert files.finished(captured(name)) is finished
    assert problem is None or files.problem(captured(name)) == problem


def test_problem_of_anything_else() -> None:
    assert files.problem("") == "it said nothing"
    assert files.problem("x\nhttps://a/b?sv=1&sig=secret%3D&se=2") == "https://a/b?sv=1&sig=REDACTED&se=2"


@pytest.mark.parametrize(
    "destination, name, want",
    [
        (f"{ACCOUNT}/ckpt", "run/1", f"{ACCOUNT}/ckpt/run/1"),
        (f"{ACCOUNT}/ckpt/", "/run/", f"{ACCOUNT}/ckpt/run"),
        (f"{ACCOUNT}/ckpt/team", "", f"{ACCOUNT}/ckpt/team"),
    ],
)
def test_target(destination: str, name: str, want: str) -> None:
    assert files.target(destination, name) == want


@pytest.mark.parametrize(
    "destination, name",
    [
        ("http://account.blob.core.windows.net/ckpt", "a"),
        (f"{ACCOUNT}/ckpt?sv=1&sig=secret", "a"),
        (f"{ACCOUNT}/ckpt", ""),
        (f"{ACCOUNT}/Ckpt", "a"),
        (f"{ACCOUNT}/ckpt", "../a"),
        (f"{ACCOUNT}/ckpt", "a//b"),
        (f"{ACCOUNT}/ckpt", "a*"),
        (ACCOUNT, "ck/a"),
        ("", "a"),
    ],
)
def test_no_place_for_a_checkpoint(destination: str, name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        files.target(destination, name)
    assert "secret" not in str(caught.value)


def test_urls_of_blobs() -> None:
    assert files.blob_url(ACCOUNT, "a b/ä.pt") == f"{ACCOUNT}/a%20b/%C3%A4.pt"
    assert files.blob_url(ACCOUNT, "a", "?sig=x") == f"{ACCOUNT}/a?sig=x"
    assert files.blob_url(ACCOUNT, "", "sig=x") == f"{ACCOUNT}?sig=x"


def entries(**sizes: int) -> files.Entries:
    return {name: files.entry(size, Sums(f"{size:032x}", f"{size:064x}")) for name, size in sizes.items()}


def test_manifest_is_read_as_it_was_written() -> None:
    text = files.manifest(entries(b=1, a=2))
    assert files.read_manifest(text, "it") == entries(a=2, b=1)
    assert text == files.manifest(entries(a=2, b=1))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "files": [1]}', '{"schema": 2, "files": {}}'])
def test_no_manifest(text: str) -> None:
    with pytest.raises(CheckpointError, match="it is"):
        files.read_manifest(text, "it")


def test_what_differs() -> None:
    want = entries(a=1, b=2, c=3)
    blobs: dict[str, t.Any] = {"a": files.Blob(1, f"{1:032x}"), "b": files.Blob(2, ""), "x": files.Blob(0, "")}
    assert files.differing(want, blobs) == ["b", "c"]
    assert files.stray(want, {**blobs, "MANIFEST.json": files.Blob(1, "")}) == ["x"]
    assert files.conflicts(entries(a=1, b=3, d=1), want) == ["b", "d"]
