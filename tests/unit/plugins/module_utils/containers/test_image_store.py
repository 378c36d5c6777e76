# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images on the shared directory, from files, a web server, and enroot as a script that says what enroot says."""

from __future__ import annotations

import hashlib
import io
import os
import typing as t
from pathlib import Path
from urllib.error import URLError

import pytest
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import ImageError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_store import ImageReference, ImageStore
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.images_made import squashfs

DOCKER = "docker://ctl:5000#lab/app:1"


class World:
    """A shared directory, a file to take, and enroot with a registry behind it."""

    def __init__(self, home: Path) -> None:
        home.chmod(0o755)
        self.home, self.images = home, home / "images"
        (home / "bin").mkdir()
        stand_in(home / "bin/enroot", "enroot.sh")
        self.registry(b"one", 1)
        self.given = home / "given.sqsh"
        self.given.write_bytes(squashfs(b"given"))

    def registry(self, content: bytes, digest: int) -> None:
        (self.home / "squashfs").write_bytes(squashfs(content))
        (self.home / "digest").write_text(f"sha256:{str(digest) * 64}\n")

    @property
    def calls(self) -> list[str]:
        path = self.home / "calls"
        found = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def store(
        self, where: str = DOCKER, opened: t.Any = None, keep: int = 1, verify: bool = False, **more: t.Any
    ) -> ImageStore:
        asked = ImageReference(**{"name": "app", "source": where, **more})
        return ImageStore(self.images, asked, image_store.EnrootOrigin(asked, [], 60, opened), keep, verify)

    def have(self, *words: t.Any, dry: bool = False, **more: t.Any) -> dict[str, t.Any]:
        return self.store(*words, **more).ensure(dry)

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.images.iterdir() if path.name != ".lock")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return World(tmp_path)


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_image_is_imported_once_by_its_digest(world: World) -> None:
    planned = world.have(dry=True)
    assert planned["changed"]
    assert planned["image"]["file"] == ""
    assert world.calls == []
    assert not world.images.exists()
    found = world.have()
    assert found["changed"]
    assert found["reason"] == "it is not there"
    assert f"@sha256:{'1' * 64}" in (world.home / "calls").read_text()
    assert world.calls == ["digest", "import", "version"]
    image = found["image"]
    assert Path(image["link"]).resolve() == Path(image["path"])
    assert sha(Path(image["path"])) == image["sha256"]
    assert image["digest"] == f"sha256:{'1' * 64}"
    assert image["enroot"] == "4.1.2"
    again = world.have()
    assert (again["changed"], again["image"], world.calls) == (False, image, [])


def test_a_tag_that_moved_is_told_or_imported(world: World) -> None:
    first = world.have()["image"]
    world.registry(b"two", 2)
    assert world.have() == {**world.have(), "changed": False, "moved": None}
    checked = world.have(pull="check")
    assert not checked["changed"]
    assert checked["moved"] == {"from": f"sha256:{'1' * 64}", "to": f"sha256:{'2' * 64}"}
    assert world.have(pull="always", dry=True)["changed"]
    second = world.have(pull="always")
    assert second["reason"].startswith("the tag moved from")
    assert second["image"]["file"] != first["file"]
    assert first["file"] in world.names, "one old version stays"
    world.calls  # noqa: B018 - forgets them
    world.registry(b"one", 1)
    assert world.have(pull="always")["image"] == first
    assert world.calls == ["digest"], "the old version was there"
    assert not world.have(pull="always")["changed"]


def test_another_name_of_the_same_image_changes_once(world: World) -> None:
    first = world.have()["image"]
    other = world.have("docker://ctl:5000#lab/app:latest")
    assert other["changed"]
    assert other["image"]["file"] == first["file"]
    assert not world.have("docker://ctl:5000#lab/app:latest")["changed"]


def test_squash_options_make_another_image(world: World) -> None:
    world.have()
    assert (world.home / "options").read_text() == "\n"
    assert world.have(squash_options="-noI")["changed"]
    assert (world.home / "options").read_text() == "-noI\n"
    assert not world.have(squash_options="-noI")["changed"]


def test_a_registry_that_is_down_changes_nothing(world: World) -> None:
    before = world.have()
    (world.home / "down").touch()
    assert not world.have()["changed"]
    with pytest.raises(ImageError, match=r"Failed to connect to ctl \(is the registry up") as caught:
        world.have(pull="always")
    assert "[INFO]" not in str(caught.value)
    with pytest.raises(ImageError, match="cannot be had"):
        world.have("docker://ctl:5000#lab/other")
    assert world.store().manifest(before["image"]["file"])
    assert len(world.names) == 3


def test_a_squashfs_that_was_cut_off_is_not_taken(world: World) -> None:
    (world.home / "squashfs").write_bytes(squashfs(used=9999))
    with pytest.raises(ImageError, match="cut off"):
        world.have()
    assert world.names == []


def test_an_enroot_without_digests(world: World) -> None:
    stand_in(world.home / "bin/enroot", "enroot.sh", older="yes")
    assert world.have()["image"]["digest"] == ""
    assert not world.have(pull="always")["changed"]


def test_a_file_is_taken_with_its_digest(world: World) -> None:
    given = sha(world.given)
    found = world.have(str(world.given), sha256=given)
    assert found["image"]["file"] == f"app-{given[:12]}.sqsh"
    world.given.unlink()
    assert not world.have(str(world.given), sha256=given)["changed"], "it is not needed any more"
    assert world.calls == []


def test_a_file_with_another_digest_is_not(world: World) -> None:
    world.have(str(world.given), sha256=sha(world.given))
    before = world.names
    with pytest.raises(ImageError, match=r"has sha256 .*; it is not taken"):
        world.have(str(world.given), sha256="a" * 64)
    with pytest.raises(ImageError, match="No such file"):
        world.have("/nowhere/x.sqsh", sha256="a" * 64)
    assert world.names == before


def test_a_file_from_a_web_server(world: World) -> None:
    data = world.given.read_bytes()
    found = world.have("https://x/a.sqsh?sig=s", lambda url: io.BytesIO(data), sha256=sha(world.given))
    assert found["image"]["source"] == "https://x/a.sqsh"

    def fails(url: str) -> t.Any:
        raise URLError("certificate verify failed")

    with pytest.raises(ImageError, match="certificate verify failed") as caught:
        world.have("https://x/a.sqsh?sig=s", fails, sha256="a" * 64)
    assert "sig" not in str(caught.value)


def test_a_damaged_image_is_imported_again_and_not_kept(world: World) -> None:
    first = world.have()["image"]
    os.truncate(first["path"], 50)
    world.registry(b"squashfs are never the same twice", 1)
    again = world.have()
    assert again["reason"] == f"{first['file']} has 50 bytes instead of {first['size']}"
    assert first["file"] not in world.names
    assert not world.have()["changed"]


def test_damage_in_place_is_seen_and_a_touched_file_is_kept(world: World) -> None:
    image = world.have()["image"]
    os.utime(image["path"])
    assert not world.have()["changed"]
    assert not world.have(verify=True)["changed"]
    data = bytearray(Path(image["path"]).read_bytes())
    data[-1] ^= 1
    Path(image["path"]).write_bytes(bytes(data))
    assert "instead of" in world.have(dry=True)["reason"]
    assert world.have()["changed"]
    assert sha(Path(image["path"])) == image["sha256"]


def test_what_killed_runs_left_goes_and_others_files_stay(world: World) -> None:
    world.have()
    (world.images / ".app.77.partial").write_bytes(b"x")
    (world.images / "notes.txt").touch()
    world.have()
    assert ".app.77.partial" not in world.names
    assert "notes.txt" in world.names


def test_a_directory_that_others_write_to_is_refused(world: World) -> None:
    world.images.mkdir()
    world.images.chmod(0o777)
    for dry in (True, False):
        with pytest.raises(ImageError, match="can be written by everybody"):
            world.have(dry=dry)
    assert world.calls == []


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_a_manifest_that_was_spoilt_is_none(world: World, text: str) -> None:
    image = world.have()["image"]
    (world.images / f"{image['file'][:-5]}.json").write_text(text)
    assert world.have()["reason"] == "it is not there"
    assert not world.have()["changed"]


def test_somebody_s_file_is_not_taken_for_a_link(world: World) -> None:
    world.images.mkdir()
    (world.images / "app.sqsh").touch()
    with pytest.raises(ImageError, match="is no link"):
        world.have()
    assert world.store().remove(False)
    assert world.names == ["app.sqsh"]
    assert not world.store().remove(False)


def test_an_image_that_is_to_go(world: World) -> None:
    assert not world.store().remove(False)
    world.have()
    assert world.store().remove(True)
    assert len(world.names) == 3
    assert world.store().remove(False)
    assert world.names == []
    assert not world.store().remove(False)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("curl: (6) Could not resolve host: x", "is the registry up"),
        ("[ERROR] URL http://x returned error code: 401 Unauthorized", "credentials"),
        ("[ERROR] URL http://x returned error code: 404 Not Found", "name and tag"),
        ("zstd: error 70 : Write error : No space left on device", "is there room"),
        ("enroot-aufs2ovlfs: failed to set capabilities: Operation not permitted", "capabilities"),
        ("enroot cannot be started: No such file or directory", "installed"),
        ("mkdir: cannot create directory: Permission denied", ""),
    ],
)
def test_what_enroot_says_is_told_with_what_to_do(said: str, told: str) -> None:
    found = image_store.refusal("it failed", Outcome(1, "", f"[INFO] Fetching\n\x1b[31m{said}\x1b[0m\n", 1.0))
    assert found.startswith(f"it failed: {said}")
    assert (told in found) if told else not found.endswith(")")


def test_an_import_on_a_node() -> None:
    words = image_store.on_a_node("/usr/bin/srun", None, {"mem": "8G", "nodes": 4})
    assert words[0] == "/usr/bin/srun"
    assert {"--nodes=1", "--ntasks=1", "--mem=8G", "--chdir=/"} <= set(words)
