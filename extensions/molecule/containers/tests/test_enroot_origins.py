# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where enroot comes from: three origins with one result, and what is in use when one of them fails."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest
from conftest import SQUASHED, STATE, Lab, changed, done, finished

COMMIT = "bd51f53b6fa954805ae3e1985c5dc7594ff66d05"
RELEASE = "4.1.2-1"


def version(lab: Lab, node: str) -> str:
    return lab.root("dpkg-query --show --showformat='${Version}' enroot", node)


def works(lab: Lab) -> None:
    """A user can import, unpack and start."""
    steps = f"enroot create -n app {SQUASHED} >/dev/null 2>&1 && enroot start app true"
    result = lab.srun(steps, "-N2")
    assert result.rc == 0, result.stderr
    for node in lab.compute:
        assert "cap_sys_admin=ep" in lab.root("getcap /usr/bin/enroot-mksquashovlfs", node)


@pytest.fixture
def archive(tmp_path: Path) -> t.Callable[..., dict[str, str]]:
    """The pinned source as an archive, with a file changed."""
    whole = next((STATE / "cache/sources").glob(f"enroot-{COMMIT}"))

    def make(name: str = "", text: str = "") -> dict[str, str]:
        path = tmp_path / f"enroot{len(list(tmp_path.iterdir()))}.tar"
        with tarfile.open(whole) as before, tarfile.open(path, "w") as after:
            for member in before.getmembers():
                data = before.extractfile(member).read() if member.isfile() else b""  # type: ignore[union-attr]
                data += text.encode() if member.name.endswith(f"/{name}") else b""
                member.size = len(data)
                member.pax_headers = {}
                after.addfile(member, io.BytesIO(data))
        return {"archive": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}

    return make


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Two packages as a release of enroot has them, made of the one that was built."""
    place = tmp_path_factory.mktemp("release")
    built = max((STATE / "cache/packages").glob("enroot_*.deb"), key=lambda path: path.stat().st_mtime)
    subprocess.run(["dpkg-deb", "-R", built, place / "enroot"], check=True)
    control = (place / "enroot/DEBIAN/control").read_text().splitlines()
    kept = [line for line in control if line.split(":")[0] not in ("Version", "Conflicts", "Provides", "Replaces")]
    (place / "enroot/DEBIAN/control").write_text("\n".join([*kept, f"Version: {RELEASE}", ""]))
    (place / "caps/DEBIAN").mkdir(parents=True)
    (place / "enroot/DEBIAN/postinst").rename(place / "caps/DEBIAN/postinst")
    words = {"Package": "enroot+caps", "Version": RELEASE, "Architecture": "amd64", "Maintainer": "x <x@localhost>"}
    words.update({"Depends": f"enroot (= {RELEASE}), libcap2-bin", "Description": "capabilities"})
    (place / "caps/DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in words.items()))
    made = []
    for name in ("enroot", "caps"):
        path = place / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", place / name, path], check=True)
        made.append({"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    return made


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"git": "/nowhere", "commit": "v4.1.2"}, "full"),
        ({"git": "/nowhere", "commit": "0" * 40}, "cannot get commit"),
        ({"archive": "https://nowhere.invalid/enroot.tar", "sha256": "1" * 64}, "nowhere.invalid"),
    ],
)
def test_a_source_that_cannot_be_had_changes_nothing(healthy: Lab, source: dict[str, str], said: str) -> None:
    before = [version(healthy, node) for node in healthy.compute]
    status, output = finished(healthy.enroot(enroot_source=source))
    assert status != 0
    assert said in output
    assert [version(healthy, node) for node in healthy.compute] == before


def test_a_wrong_checksum_changes_nothing(healthy: Lab, archive: t.Any, release: list[dict[str, str]]) -> None:
    before = [version(healthy, node) for node in healthy.compute]
    good, bad = archive(), "2" * 64
    status, output = finished(healthy.enroot(enroot_source={**good, "sha256": bad}))
    assert status != 0
    assert f"has the SHA-256 digest {good['sha256']}, not {bad}" in output.replace("\n", " ")
    packages = [release[0], {**release[1], "sha256": bad}]
    status, output = finished(healthy.enroot(enroot_origin="packages", enroot_packages=packages))
    assert status != 0
    assert f"has the SHA-256 digest {release[1]['sha256']}, not {bad}" in output.replace("\n", " ")
    assert [version(healthy, node) for node in healthy.compute] == before
    works(healthy)


def test_a_build_that_breaks_in_the_middle_leaves_nothing_in_use(healthy: Lab, archive: t.Any) -> None:
    before = [version(healthy, node) for node in healthy.compute]
    kept = sorted((STATE / "cache/packages").iterdir())
    status, output = finished(
        healthy.enroot(enroot_source=archive("bin/enroot-mount.c", "\nint broken(void) { return }\n"))
    )
    assert status != 0
    assert "enroot-mount.c" in output
    assert "expected expression" in output
    assert [version(healthy, node) for node in healthy.compute] == before
    assert sorted((STATE / "cache/packages").iterdir()) == kept
    assert healthy.root("ls /var/tmp | grep -c enroot- || true", healthy.compute[0]) == "0"
    works(healthy)


def test_two_converges_at_once_build_one_package(healthy: Lab, archive: t.Any) -> None:
    before = version(healthy, healthy.compute[0])
    source = archive("README.md", "\n")
    for run in [healthy.enroot(enroot_source=source) for dummy in range(2)]:
        done(run)
    after = {version(healthy, node) for node in healthy.compute}
    assert len(after) == 1
    assert before not in after
    assert changed(done(healthy.enroot(enroot_source=source))) == 0
    works(healthy)
    done(healthy.enroot())
    assert {version(healthy, node) for node in healthy.compute} == {before}


def test_release_packages_and_a_repository_lead_to_the_same(healthy: Lab, release: list[dict[str, str]]) -> None:
    node = healthy.compute[0]
    before = version(healthy, node)
    healthy.root("echo '#ENROOT_MAX_CONNECTIONS 7' >> /etc/enroot/enroot.conf", node)
    packages = {"enroot_origin": "packages", "enroot_packages": release}
    done(healthy.enroot(**packages))
    assert {version(healthy, name) for name in healthy.compute} == {RELEASE}
    assert changed(done(healthy.enroot(**packages))) == 0
    works(healthy)
    done(healthy.enroot())
    assert version(healthy, node) == before
    assert healthy.host(node).run("dpkg-query --status enroot+caps").rc != 0
    repository(healthy, release)
    names = {"enroot_origin": "repository", "enroot_repository_packages": ["enroot", "enroot+caps"]}
    status, output = finished(healthy.enroot(**names))
    assert status != 0
    assert "enroot=VERSION" in output
    names["enroot_repository_packages"] = [f"enroot={RELEASE}", f"enroot+caps={RELEASE}"]
    done(healthy.enroot(**names))
    assert changed(done(healthy.enroot(**names))) == 0
    works(healthy)
    assert "ENROOT_MAX_CONNECTIONS 7" in healthy.root("cat /etc/enroot/enroot.conf", node)
    done(healthy.enroot())
    works(healthy)


def repository(lab: Lab, release: t.Sequence[dict[str, str]]) -> None:
    """Have the packages in a repository that apt on the nodes knows."""
    index = ""
    for one in release:
        path = Path(one["path"])
        control = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
        index += f"{control}Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {one['sha256']}\n\n"
        (STATE / "shared/images" / path.name).write_bytes(path.read_bytes())
    (STATE / "shared/images/Packages").write_text(index)
    only = "-o Dir::Etc::sourcelist=sources.list.d/probe.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
    for node in lab.compute:
        lab.root("echo 'deb [trusted=yes] file:/shared/images ./' > /etc/apt/sources.list.d/probe.list", node)
        lab.root(f"apt-get update -qq {only}", node)


def test_enroot_goes_and_comes_back(healthy: Lab) -> None:
    node = healthy.compute[0]
    done(healthy.enroot(enroot_state="absent"))
    assert changed(done(healthy.enroot(enroot_state="absent"))) == 0
    assert healthy.host(node).run("command -v enroot").rc != 0
    found = healthy.root(
        "ls -d /etc/enroot/*/*hpcai* /usr/local/sbin/hpcai-enroot /etc/slurm/*log.d/50* 2>/dev/null | wc -l", node
    )
    assert found == "0"
    # The directories of prologs are not empty: jobs start.
    assert healthy.srun("true", "-N2").rc == 0
    done(healthy.enroot())
    works(healthy)
    assert changed(done(healthy.enroot())) == 0
