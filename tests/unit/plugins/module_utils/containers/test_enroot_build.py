# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How enroot is built, and that nothing is kept that did not build to its end."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import debian, enroot_package
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.enroot_package import EnrootError, Platform

BOOKWORM = Platform("debian 12", "x86_64", (2, 36))
TRIXIE = Platform("debian 13", "aarch64", (2, 41))
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
FORKY = "PRETTY_NAME=x\nVERSION_CODENAME=forky\nID=debian\n"


@pytest.mark.parametrize(("text", "name"), [(DEBIAN, "debian 12"), (FORKY, "debian forky")])
def test_a_system_is_its_distribution_and_release(text: str, name: str) -> None:
    assert enroot_package.system(text) == name


@pytest.mark.parametrize(
    "call",
    [
        lambda: enroot_package.system("ID=arch\n"),
        lambda: enroot_package.glibc(""),
        lambda: enroot_package.glibc("musl 1.2"),
        lambda: enroot_package.architecture("riscv64"),
        lambda: enroot_package.upstream_version("all:\n\ttrue\n"),
    ],
)
def test_what_it_cannot_be_built_for_is_refused(call: t.Callable[[], object]) -> None:
    with pytest.raises(EnrootError):
        call()


def test_names_and_versions() -> None:
    assert enroot_package.glibc("glibc 2.36") == (2, 36)
    assert enroot_package.architecture("aarch64") == "arm64"
    assert enroot_package.upstream_version("PREFIX := x\nVERSION       := 4.1.2\nPACKAGE ?= enroot\n") == "4.1.2"


def test_an_old_c_library_is_helped_out_by_libbsd() -> None:
    assert "libbsd-dev" in enroot_package.needs(BOOKWORM)
    assert "libbsd-dev" not in enroot_package.needs(TRIXIE)
    make, install = enroot_package.steps(Path("/w/s"), Path("/w/stage"), BOOKWORM)
    assert make.environment["CPPFLAGS"].endswith("bsd/string.h")
    assert "LDLIBS=-l:libbsd.a /usr/lib/x86_64-linux-gnu/libbsd.a /usr/lib/x86_64-linux-gnu/libmd.a" in make.argv
    assert not [word for word in make.argv if word.startswith("DESTDIR")]
    assert "DESTDIR=/w/stage" in install.argv
    assert "CPPFLAGS" not in enroot_package.steps(Path("/w/s"), Path("/w/stage"), TRIXIE)[0].environment


def test_the_package_replaces_those_of_a_release_and_is_one_for_each_system() -> None:
    control = enroot_package.fields("4.1.2+hpcai.1", BOOKWORM, "x <x@y>")
    assert "libc6 (>= 2.36)" in control["Depends"]
    assert "bsdextrautils" in control["Depends"]
    assert "enroot+caps" in control["Conflicts"]
    digests = {debian.digest(enroot_package.inputs("commit:1", one)) for one in (BOOKWORM, TRIXIE)}
    assert len(digests) == 2


def test_the_parts_of_the_distribution_take_the_places_of_submodules(tmp_path: Path) -> None:
    enroot_package.prepare(tmp_path)
    enroot_package.prepare(tmp_path)
    assert (tmp_path / "deps/linux-headers/.stamp").is_file()
    assert os.readlink(tmp_path / "deps/makeself/makeself.sh") == "/usr/bin/makeself"


# A source that builds like enroot's, in a moment and without a compiler.
MAKEFILE = """VERSION := 4.1.2
all:
\t{all}
install:
\tmkdir -p $(DESTDIR)/usr/bin
\tfor name in {programs}; do printf '#!/bin/sh\\necho {says}\\n' > $(DESTDIR)/usr/bin/$$name; \\
\t  chmod 755 $(DESTDIR)/usr/bin/$$name; done
"""


def source(directory: Path, **words: str) -> tuple[str, dict[str, str]]:
    values = {"all": "true", "programs": " ".join(enroot_package.PROGRAMS), "says": "4.1.2", **words}
    data = MAKEFILE.format(**values).encode()
    path = directory / f"{hashlib.sha256(data).hexdigest()[:8]}.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("enroot/Makefile")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return str(path), {"archive": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def bring(directory: Path, **words: str) -> tuple[Path, float]:
    archive, pinned = source(directory, **words)
    (directory / "work").mkdir(exist_ok=True)
    task = enroot_package.EnrootBuild(
        f"sha256:{pinned['sha256']}", BOOKWORM, enroot_package.inputs(pinned["sha256"], BOOKWORM), directory / "cache"
    )
    return enroot_package.build(task, archive, str(directory / "work"), 60)


needs_tools = pytest.mark.skipif(
    not (shutil.which("dpkg-deb") and shutil.which("make")), reason="no dpkg or no make here"
)


@needs_tools
def test_a_build_is_kept_and_not_made_again(tmp_path: Path) -> None:
    path, seconds = bring(tmp_path)
    assert seconds > 0
    assert debian.field(path, "Depends").startswith("bash")
    assert path.name.startswith("enroot_4.1.2+hpcai.")
    assert bring(tmp_path) == (path, 0.0)
    assert list((tmp_path / "work").iterdir()) == []


@needs_tools
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"all": "echo fatal error: no header; exit 1"}, "fatal error: no header"),
        ({"programs": "enroot enroot-mount"}, "made no enroot-aufs2ovlfs"),
        ({"says": "3.5.0"}, "does not say that it is 4.1.2"),
        ({"says": "$(DESTDIR)"}, "wrote its own directory"),
    ],
)
def test_nothing_is_kept_of_a_build_that_failed(tmp_path: Path, words: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bring(tmp_path, **words)
    assert list((tmp_path / "work").iterdir()) == []
    assert list((tmp_path / "cache").glob("*.deb*")) == []


@needs_tools
def test_a_source_that_is_not_the_pinned_one_is_not_built(tmp_path: Path) -> None:
    archive = source(tmp_path)[0]
    task = enroot_package.EnrootBuild(f"sha256:{'0' * 64}", BOOKWORM, {"source": "other"}, tmp_path / "cache")
    with pytest.raises(ValueError, match="not the source that was asked for"):
        enroot_package.build(task, archive, str(tmp_path), 60)
    with pytest.raises(EnrootError, match="no archive of its source is given"):
        enroot_package.build(task, "", str(tmp_path), 60)
