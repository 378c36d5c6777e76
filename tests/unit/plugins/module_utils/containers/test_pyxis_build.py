# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds of a small plugin in place of pyxis, against headers and programs of a Slurm in a directory."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildError, SourceError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_fit as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_package as build
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.pyxis_package import PyxisError

_LACKING = [name for name in ("cc", "make", "dpkg-deb", "dpkg") if not shutil.which(name)]
pytestmark = pytest.mark.skipif(bool(_LACKING), reason=f"{', '.join(_LACKING)} missing: no package is built here")

Json = t.Dict[str, t.Any]
SOURCE = """#include <slurm/slurm_version.h>
const char plugin_name[] = "pyxis", plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
int slurm_spank_init(void) { return 0; }
"""
MAKEFILE = """PYXIS_VER ?= 0.24.0
CFLAGS := -O2 $(CFLAGS)
install:
\techo built >> $(LOG)
\t@$(SLOW)
\t$(CC) -shared -fPIC $(CFLAGS) $(CPPFLAGS) -o spank_pyxis.so pyxis.c
\tinstall -D -m 644 spank_pyxis.so $(DESTDIR)$(libdir)/slurm/spank_pyxis.so
"""


class World:
    """A Slurm in a directory, and the source of a plugin."""

    def __init__(self, path: Path) -> None:
        self.path, self.home, self.log = path, path / "slurm", path / "log"
        for name in ("bin", "sbin", "include/slurm"):
            (self.home / name).mkdir(parents=True)
        (path / "tmp").mkdir()
        self.slurm("24.11.5", 0x180B05)
        stand_in(self.home / "bin/srun", "srun_pyxis.sh")
        self.files = {"Makefile": MAKEFILE, "pyxis.c": SOURCE, "LICENSE": "free\n"}
        self.pack()

    def slurm(self, version: str, number: int | None = None) -> None:
        for name in ("bin/scontrol", "sbin/slurmd"):
            answer(self.home / name, f"slurm {version}\n")
        if number:
            (self.home / "include/slurm/spank.h").write_text("")
            (self.home / "include/slurm/slurm_version.h").write_text(f"#define SLURM_VERSION_NUMBER {number:#x}\n")

    def pack(self) -> None:
        with tarfile.open(self.path / "source.tar", "w") as tar:
            for name, text in self.files.items():
                entry = tarfile.TarInfo(f"pyxis/{name}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        self.sha256 = hashlib.sha256((self.path / "source.tar").read_bytes()).hexdigest()

    def params(self, **more: t.Any) -> Json:
        given = {"source": {"archive": "x", "sha256": self.sha256}, "archive": str(self.path / "source.tar")}
        defaults = {key: option.get("default") for key, option in build.PACKAGE_SPEC.items()}
        places = {
            "cache_dir": str(self.path / "kept"),
            "build_dir": str(self.path / "tmp"),
            "slurm_home": str(self.home),
        }
        return {**defaults, **given, **places, **more}

    def run(self, check: bool = False, **more: t.Any) -> Json:
        return build.PyxisBuilder(self.params(**more), check).perform()

    @property
    def builds(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    @property
    def kept(self) -> list[str]:
        return sorted(path.suffix for path in (self.path / "kept").glob("[!.]*"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SLOW", "true")
    return World(tmp_path)


def test_a_package_is_built_once_and_says_what_it_is(world: World) -> None:
    first = world.run()
    kept = first["package"]
    assert first["changed"] and first["build"] and kept["proof"] == "srun loaded it"
    assert kept["version"].startswith("0.24.0+slurm24.11.5+hpcai.") and kept["inputs"]["slurm"] == "24.11.5"
    assert host.packed(kept["file"]) == ("pyxis", (24, 11, 5))
    assert json.loads(Path(kept["file"]).with_suffix(".json").read_text()) == kept
    again = world.run(archive=None)
    assert not again["changed"] and again["package"] == kept and world.builds == 1
    assert not list((world.path / "tmp").iterdir())


def test_check_mode_is_the_plan(world: World) -> None:
    assert world.run(check=True)["build"] and not world.builds and not (world.path / "kept").exists()
    world.run()
    assert not world.run(check=True)["changed"]


def test_another_slurm_another_source_or_other_headers_make_another_package(world: World) -> None:
    first = world.run()["package"]["version"]
    world.slurm("25.11.2", 0x190B02)
    second = world.run()["package"]
    assert second["version"].startswith("0.24.0+slurm25.11.2") and host.packed(second["file"]).slurm == (25, 11, 2)
    world.files["pyxis.c"] += "int more;\n"
    world.pack()
    third = world.run()["package"]["version"]
    assert len({first, second["version"], third}) == 3 and world.builds == 3
    world.slurm("24.11.5", 0x180B05)  # and back: what was built is still there, but from another source
    assert world.run()["build"]


def test_the_same_inputs_make_the_same_file(world: World) -> None:
    first = world.run()["package"]["sha256"]
    assert world.run(cache_dir=str(world.path / "elsewhere"))["package"]["sha256"] == first


def test_headers_of_another_slurm_are_refused_before_anything_is_built(world: World) -> None:
    world.slurm("22.05.8")
    for check in (True, False):
        with pytest.raises(PyxisError, match=r"headers in .* are of Slurm 24\.11\.5, .* is 22\.05\.8"):
            world.run(check=check)
    with pytest.raises(PyxisError, match=r"24\.11\.5, .* is 25\.11\.0"):
        world.run(slurm_version="25.11")
    assert not world.builds and not world.kept


def test_missing_headers_are_named(world: World) -> None:
    shutil.rmtree(world.home / "include")
    with pytest.raises(PyxisError, match=r"no headers of Slurm in .*/include/slurm"):
        world.run(check=True)


def test_a_host_that_lost_its_headers_keeps_the_package_for_its_slurm(world: World) -> None:
    kept = world.run()["package"]
    shutil.rmtree(world.home / "include")
    assert world.run()["package"] == kept
    world.slurm("25.11.2")
    with pytest.raises(PyxisError):
        world.run()


@pytest.mark.parametrize(
    "damage, error, said",
    [
        ({"pyxis.c": "int broken(\n"}, BuildError, "exit status 2"),
        ({"Makefile": "all:\n"}, PyxisError, "sets no PYXIS_VER"),
        ({"pyxis.c": SOURCE.replace("SLURM_VERSION_NUMBER;", "0x160508;")}, PyxisError, r"24\.11\.5, but .* 22\.05\.8"),
    ],
)
def test_a_build_that_fails_leaves_nothing(world: World, damage: dict[str, str], error: type, said: str) -> None:
    world.files.update(damage)
    world.pack()
    with pytest.raises(error, match=said):
        world.run()
    assert not world.kept and not list((world.path / "tmp").iterdir())


def test_a_plugin_that_srun_does_not_load_is_not_kept(world: World) -> None:
    answer(world.home / "bin/srun", err="srun: error: Plug-in initialization failed\n", status=1)
    with pytest.raises(PyxisError, match=r"does not load the plugin .* initialization failed"):
        world.run()
    assert not world.kept


def test_another_archive_than_the_pinned_one_is_refused(world: World) -> None:
    with pytest.raises(SourceError, match="not the source that was asked for"):
        world.run(source={"archive": "x", "sha256": "0" * 64})
    assert not world.builds


@pytest.mark.parametrize("victim", ["json", "deb"])
def test_what_was_cut_short_is_built_again(world: World, victim: str) -> None:
    path = Path(world.run()["package"]["file"]).with_suffix(f".{victim}")
    path.write_bytes(path.read_bytes()[:100])
    assert world.run()["build"] and world.builds == 2 and not world.run()["build"]


def _other(world: World, out: multiprocessing.Queue[str]) -> None:
    out.put(world.run()["package"]["sha256"])


def test_two_at_once_are_one_build(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW", "sleep 1")
    out: multiprocessing.Queue[str] = multiprocessing.Queue()
    both = [multiprocessing.Process(target=_other, args=(world, out)) for dummy in range(2)]
    for one in both:
        one.start()
    assert out.get(timeout=patience(60)) == out.get(timeout=patience(60))
    for one in both:
        one.join()
    assert world.builds == 1


def test_a_build_that_is_killed_leaves_nothing_that_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW", "sleep 600")
    out: multiprocessing.Queue[str] = multiprocessing.Queue()
    one = multiprocessing.Process(target=_other, args=(world, out))
    one.start()
    end = time.monotonic() + 30
    while not world.builds and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(one.pid or 0, signal.SIGKILL)
    one.join()
    assert not world.kept
    monkeypatch.setenv("SLOW", "true")
    assert world.run()["build"] and world.kept == [".deb", ".json"]
