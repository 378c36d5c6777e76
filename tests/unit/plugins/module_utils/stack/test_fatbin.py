# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which GPUs a shared object has code is read in it: sections and containers as nvcc 13.0 writes them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _elf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex import device_code
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import ApexError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.environment import complete_toolkits

PTX, CODE = 1, 2


def container(*images: tuple[int, int]) -> bytes:
    """What nvcc makes of one source: an image of each kind and architecture, here of 24 bytes."""
    body = b""
    for kind, architecture in images:
        header = struct.pack("<HHIQIIHHI", kind, 0x101, 64, 24, 20, 64, 7, 1, architecture)
        body += header.ljust(64, b"\0") + b"\x28\xb5\x2f\xfd".ljust(24, b"z")
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def shared_object(path: Path, sections: dict[str, bytes]) -> Path:
    """An ELF file of 64 bits with nothing but sections."""
    names = b"\0" + b"".join(f"{name}\0".encode() for name in [*sections, ".shstrtab"])
    rows, content, offset = [struct.pack("<IIQQQQIIQQ", *[0] * 10)], b"", 64
    for name, data in [*sections.items(), (".shstrtab", names)]:
        at = names.index(f"\0{name}\0".encode()) + 1
        rows.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, offset + len(content), len(data), 0, 0, 8, 0))
        content += data
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    count = len(rows)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, count, count - 1
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + content + b"".join(rows))
    return path


def test_what_there_is_code_for_is_read(tmp_path: Path) -> None:
    # The linker puts the containers of the objects side by side, aligned.
    fat = container((CODE, 80), (CODE, 90)) + bytes(8) + container((PTX, 100), (CODE, 100), (CODE, 80)) + bytes(4)
    path = shared_object(tmp_path / "amp_C.so", {".text": b"\x50\xed\x55\xba", ".nv_fatbin": fat})
    assert _elf.architectures(path) == ["sm_80", "sm_90", "compute_100", "sm_100"]
    assert _elf.architectures(shared_object(tmp_path / "apex_C.so", {".text": b"\xc3"})) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no ELF file"),
        (b"!<arch>\n" * 20, "is no ELF file of 64 bits"),
        ({".nv_fatbin": b"\1" * 64}, "what is at 0 of .nv_fatbin is no container"),
        ({".nv_fatbin": container((CODE, 80))[:40]}, "ends in the middle of device code"),
        ({".nv_fatbin": struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + bytes(64)}, "a header without a size"),
    ],
)
def test_what_is_spoilt_is_refused(tmp_path: Path, content: bytes | dict[str, bytes], said: str) -> None:
    path = tmp_path / "x.so"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        shared_object(path, content)
    with pytest.raises(_elf.FatbinError, match=said):
        _elf.architectures(path)


def test_a_file_that_ends_before_its_sections_is_refused(tmp_path: Path) -> None:
    path = shared_object(tmp_path / "x.so", {".nv_fatbin": container((CODE, 80))})
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(_elf.FatbinError, match="ends before its sections do"):
        _elf.architectures(path)


def test_a_wheel_tells_what_its_modules_run_on_and_is_refused_where_one_does_not(tmp_path: Path) -> None:
    shared_object(tmp_path / "apex_C.cpython-311-x86_64-linux-gnu.so", {".text": b"\xc3"})
    shared_object(tmp_path / "amp_C.cpython-311-x86_64-linux-gnu.so", {".nv_fatbin": container((CODE, 80), (PTX, 90))})
    # 8.6 runs code for 8.0, and 10.0 the PTX for 9.0.
    assert device_code(tmp_path, ["8.6", "10.0"]) == {"amp_C": ["sm_80", "compute_90"]}
    shared_object(tmp_path / "apex/fmhalib.so", {".nv_fatbin": container((CODE, 80))})
    with pytest.raises(ApexError, match=r"fmhalib has code for sm_80 alone, none that runs on 9\.0, 10\.0\. Leave"):
        device_code(tmp_path, ["8.0", "9.0", "10.0"])


def test_the_packages_of_a_compiler_become_a_toolkit(tmp_path: Path) -> None:
    toolkit = tmp_path / "lib/python3.11/site-packages/nvidia/cu13"
    for name in ("bin/nvcc", "lib/libcudart.so.13", "lib/libnvvm.so", "lib/libnvvm.so.4", "lib/libcudart_static.a"):
        (toolkit / name).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / name).touch()
    for dummy in range(2):
        complete_toolkits(tmp_path)
        assert (toolkit / "lib64/libcudart.so").resolve() == toolkit / "lib/libcudart.so.13"
        assert not (toolkit / "lib/libnvvm.so").is_symlink()


def test_an_environment_without_a_compiler_stays_as_it_is(tmp_path: Path) -> None:
    library = tmp_path / "lib/python3.11/site-packages/nvidia/cu13/lib/libcudart.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    complete_toolkits(tmp_path)
    assert [path.name for path in library.parents[1].iterdir()] == ["lib"]
