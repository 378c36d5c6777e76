# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files: the role's own, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.markers import Marker

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import installer as install
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import lock_files as locks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import EnvironmentRefused

FILES = Path(__file__).resolve().parents[5] / "roles/pytorch/files"
HASH = "a" * 64
# The names of an interpreter, as python_env_python.ask returns them.
MARKERS = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux", "os_name": "posix"}


def held(name: str, python: str, machine: str = "x86_64") -> dict[str, str]:
    text = (FILES / f"{name}.txt").read_text()
    known = {**MARKERS, "platform_machine": machine, "python_full_version": f"{python}.4", "python_version": python}
    found = locks.applicable(locks.pins(name, text), lambda marker: Marker(marker).evaluate(dict(known)))
    assert all(pin.hashes for pin in found)
    names = [pin.name for pin in found]
    assert len(names) == len(set(names)), f"{name} holds packages twice for Python {python}"
    return {pin.name: pin.version for pin in found}


@pytest.mark.parametrize("name", ["cpu", "cu126", "cu128", "cu130", "cu132"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_lock_file_holds_each_package_once_with_hashes(name: str, python: str) -> None:
    found = held(name, python)
    assert {"torch", "numpy", "sympy", "typing-extensions"} <= set(found)
    assert any(one.startswith("nvidia-") for one in found) == (name != "cpu")


@pytest.mark.parametrize(
    ("name", "package", "version"),
    [
        ("cu126", "nvidia-cuda-runtime-cu12", "12.6"),
        ("cu128", "nvidia-cuda-runtime-cu12", "12.8"),
        ("cu130", "nvidia-cuda-runtime", "13.0"),
        ("cu132", "nvidia-cuda-runtime", "13.2"),
        ("cu130", "nvidia-nvjitlink", "13.0"),
        ("cu132", "nvidia-nvjitlink", "13.2"),
    ],
)
def test_cuda_in_a_lock_file_is_the_one_in_its_name(name: str, package: str, version: str) -> None:
    assert held(name, "3.12")[package].startswith(version)


def test_builds_for_cuda_13_are_for_arm_as_well() -> None:
    assert held("cu130", "3.12", "aarch64")["nvidia-cuda-runtime"].startswith("13.0")
    assert "nvidia-cuda-runtime-cu12" not in held("cu128", "3.12", "aarch64")


@pytest.mark.parametrize(
    "file", sorted(FILES.parents[1].glob("*/files/*.txt")), ids=lambda file: f"{file.parts[-3]}-{file.stem}"
)
def test_every_lock_file_of_a_role_is_accepted(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if "==" in text:
        assert locks.pins(file.name, text)


def test_comments_and_layout_do_not_count() -> None:
    assert locks.lines(f"# why\na==1 \\\n    --hash=sha256:{HASH}  # via b\n\n") == [f"a==1 --hash=sha256:{HASH}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch\n", "'torch' is no name==version"),
        ("torch>=2\n", "no name==version"),
        ("torch==2.*\n", "no name==version"),
        ("--extra-index-url=https://example.org\ntorch==2\n", "no name==version"),
        ("-r other.txt\n", "no name==version"),
        ("git+https://example.org/x\n", "no name==version"),
        ("# nothing\n", "names no package"),
        (f"a==1 --hash=sha256:{HASH}\nb==2\n", "mine has no hashes for b: whatever an index offers"),
        ("b==2\nA_a==1\n", "mine has no hashes for a-a, b: .* --generate-hashes"),
        (f"a==1 --hash=md5:{HASH[:32]}\n", "the hashes of a are none that count"),
        (f"a==1 --hash=sha256:{HASH[:63]}\n", "the hashes of a are none that count"),
        ("a==1 --hash=\n", "(no name==version|none that count)"),
        ("a==1 --no-binary a\n", "no name==version"),
    ],
)
def test_what_is_not_pinned_is_refused(text: str, said: str) -> None:
    with pytest.raises(EnvironmentRefused, match=said):
        locks.pins("mine", text)


def test_extras_and_markers_are_read() -> None:
    (pin,) = locks.pins("mine", f"Cuda_Toolkit[cublas,cudart]==13.0.2 ; sys_platform == 'linux' --hash=sha256:{HASH}\n")
    assert pin == locks.Pin("cuda-toolkit", "13.0.2", "sys_platform == 'linux'", [f"sha256:{HASH}"])
    assert locks.flat([pin]) == f"cuda-toolkit==13.0.2 --hash=sha256:{HASH}\n"


EXPLICIT = (
    """# platform: linux-64
@EXPLICIT
https://conda.example.org/conda-forge/linux-64/python-3.12.8-h9e4cc4f_1_cpython.conda#7fd2fd79436d9b473812f14e86746844
https://conda.example.org/conda-forge/noarch/tzdata-2025a-h78e105d_0.tar.bz2#sha256:"""
    + HASH
)


def test_explicit_conda_specifications() -> None:
    assert locks.is_conda(EXPLICIT)
    assert not locks.is_conda("torch==2.0")
    found = locks.packages("mine", EXPLICIT)
    assert [(one.file, one.kind) for one in found] == [
        ("python-3.12.8-h9e4cc4f_1_cpython.conda", "md5"),
        ("tzdata-2025a-h78e105d_0.tar.bz2", "sha256"),
    ]
    assert locks.local(found, "/tmp/x").splitlines()[2] == f"file:///tmp/x/tzdata-2025a-h78e105d_0.tar.bz2#{HASH}"


@pytest.mark.parametrize(
    "line", ["https://conda.example.org/a-1-0.conda", "a-1-0", "https://conda.example.org/a-1-0.zip#" + "0" * 32]
)
def test_conda_packages_without_a_digest_are_refused(line: str) -> None:
    with pytest.raises(EnvironmentRefused, match="no URL of a conda package with #md5"):
        locks.packages("mine", f"@EXPLICIT\n{line}\n")


def test_an_index_with_a_password_is_refused_without_repeating_it() -> None:
    sound = ["https://mirror.example/simple", "https://robot@mirror.example/simple"]
    assert install.public(sound) == sound
    with pytest.raises(EnvironmentRefused, match="netrc") as caught:
        install.public([*sound, "https://robot:s3cret@mirror.example/simple"])
    assert "s3cret" not in str(caught.value)
