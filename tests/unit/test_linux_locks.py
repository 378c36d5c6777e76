# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digests that stay in a lock file are those of files that its hosts can install."""

from __future__ import annotations

from pathlib import Path

import linux_locks
import pytest

ROLES = Path(__file__).resolve().parents[2] / "roles"
WHEEL = '{{ url = "https://example.org/a/{}", hashes = {{ sha256 = "{}" }} }}'
NUMPY = {
    "a" * 64: "numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "b" * 64: "numpy-2.4.6-cp311-cp311-win_amd64.whl",
    "c" * 64: "numpy-2.4.6-cp311-cp311-musllinux_1_2_x86_64.whl",
    "d" * 64: "numpy-2.4.6-cp39-cp39-manylinux_2_28_aarch64.whl",
    "1" * 64: "numpy-2.4.6-cp312-cp312-manylinux_2_28_x86_64.whl",  # the lock's own marker is for older ones
}
PYLOCK = f"""
[[packages]]
name = "numpy"
wheels = [{", ".join(WHEEL.format(name, digest) for digest, name in NUMPY.items())}]
"""
SDIST, OTHER = "e" * 64, "f" * 64
HASHES = " \\\n".join(f"    --hash=sha256:{digest}" for digest in [*NUMPY, SDIST])
LOCK = f"""# Made from x.in.
numpy==2.4.6 ; python_full_version < '3.12' \\
{HASHES}
# By hand.
Torch==2.13.0+cpu \\
    --hash=sha256:{OTHER}
"""


def test_what_no_host_can_install_loses_its_digest_and_a_package_that_is_not_known_keeps_all() -> None:
    shortened = linux_locks.shortened(LOCK, linux_locks.files(PYLOCK), 10)
    assert shortened == LOCK.replace(HASHES[HASHES.index(" \\\n") :], "")
    assert shortened != LOCK and linux_locks.shortened(shortened, linux_locks.files(PYLOCK), 10) == shortened


def test_a_lock_says_what_it_was_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, pylock = tmp_path / "x.txt", tmp_path / "pylock.toml"
    lock.write_text(LOCK.partition("\n")[2])
    pylock.write_text(PYLOCK)
    monkeypatch.setattr(linux_locks.sys, "argv", ["", str(lock), str(pylock), "3.10"])
    linux_locks.main()
    assert lock.read_text().startswith("# Made from x.in by make lock-pytorch.\nnumpy==")


@pytest.mark.parametrize("path", sorted(ROLES.glob("*/files/*.in")), ids=lambda path: path.stem)
def test_every_lock_of_the_training_stack_says_it(path: Path) -> None:
    first = path.with_suffix(".txt").read_text().partition("\n")[0]
    assert first == f"# Made from {path.name} by make lock-pytorch."


def test_a_package_that_no_host_could_install_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"nothing could install numpy==2\.4\.6"):
        linux_locks.shortened(LOCK, linux_locks.files(PYLOCK), 12)


@pytest.mark.parametrize(
    ("wheel", "fits"),
    [
        ("jinja2-3.1.6-py3-none-any.whl", True),
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("cryptography-45.0.0-cp311-abi3-manylinux_2_34_aarch64.whl", True),
        ("cryptography-45.0.0-cp37-abi3-manylinux_2_28_x86_64.whl", True),
        ("uv-0.13.9-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl", True),
        ("pyyaml-6.0.3-cp313-cp313t-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", False),
        ("pyyaml-6.0.3-cp38-cp38-manylinux2014_x86_64.whl", False),
        ("uv-0.13.9-py3-none-manylinux_2_31_riscv64.whl", False),
        ("numpy-2.2.6-pp310-pypy310_pp73-manylinux_2_17_x86_64.whl", False),
        ("torch-2.15.0-cp311-cp311-macosx_14_0_arm64.whl", False),
    ],
)
def test_which_wheels_linux_with_glibc_can_install(wheel: str, fits: bool) -> None:
    assert linux_locks.usable(wheel, 10) == fits
