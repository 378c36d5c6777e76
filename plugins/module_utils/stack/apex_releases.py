# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release of Apex works with which PyTorch and CUDA. Pure.

Apex says it nowhere; it is known by what had to be mended in it. A source that is not listed is not judged.
``make check-stack`` compares the list with a clone of Apex.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.fitting import within


class Fault(t.NamedTuple):
    """What does not work until a commit has mended it; no extensions: nothing of Apex does."""

    extensions: frozenset[str]
    kind: str  # torch or cuda
    works: str
    mended: str
    because: str


class Release(t.NamedTuple):
    """A release of Apex; the first so many of the faults are mended in it."""

    name: str
    mended: int


# By the date of what mended them.
FAULTS = (
    Fault(
        frozenset(),
        "torch",
        "<2.0",
        "6943fd26e04c59327de32592cf5af68be8f5c44e",
        "it imports torch._six, which PyTorch has no more since 2.0 (https://github.com/NVIDIA/apex/pull/1588)",
    ),
    Fault(
        frozenset({"cuda_ext", "fast_layer_norm", "fast_multihead_attn"}),
        "cuda",
        "<13.0",
        "26bba57d62553d268319b4a20cc3d8aa990249ec",
        "its setup.py asks nvcc for compute_70, which CUDA 13 has no more (https://github.com/NVIDIA/apex/pull/1918)",
    ),
    Fault(
        frozenset({"distributed_adam"}),
        "torch",
        "<2.12",
        "f199212da7234bf9be2244cad5b9bfa2f5fe2675",
        "PyTorch compiles extensions as C++20 since 2.12, where its lerp is ambiguous "
        "(https://github.com/NVIDIA/apex/pull/1985)",
    ),
    Fault(
        frozenset({"group_norm"}),
        "torch",
        "<2.12",
        "1bcf66dc11c3f614d6a071b1bb39854189ea3110",
        "PyTorch's headers are C++20 since 2.12, and it is compiled as C++17 (https://github.com/NVIDIA/apex/pull/2006)",
    ),
)
# The tags, oldest first, and what the role builds.
RELEASES: t.Mapping[str, Release] = {
    "59978d5e37612606e2f9ef334a7687360fbaf19e": Release("22.03", 0),
    "0da3ffb92ee6fbe5336602f0e3989db1cd16f880": Release("23.05", 1),
    "4891351604914f40fabb889b34f92c43466e404d": Release("23.06", 1),
    "03fd633ed736cbda3b71adb466301e21138ae4f8": Release("23.07", 1),
    "bae1f93d033716dc9115a0baf7bcda328addabe9": Release("23.08", 1),
    "5b04afcf5ca59de87af4b3cb71afd52bdf4d490e": Release("23.09, 23.10", 1),
    "9fc94b7d6db1b178adf9a6e92750f070dd9f825d": Release("23.11", 1),
    "acd89502dd5d6d733c29e6c6df3945ddaf8e509e": Release("23.12, 24.01", 1),
    "48c4894c4b38b2b77cd7a0473ca665e89c9c148b": Release("24.02", 1),
    "b496d85fb88a801d8e680872a12822de310951fd": Release("24.03, 24.04", 1),
    "4138d31ff0acf4071d1dc001ccb7cd6e00800324": Release("24.04.01", 1),
    "810ffae374a2b9cb4b5c5e28eaeca7d7998fca0c": Release("24.05", 1),
    "a7de60e57f0534266841e1733262601ad76aaa74": Release("24.06, 24.07", 1),
    "23c1f86520e22b505e8fdfcf6298273dff2d93d8": Release("24.08", 1),
    "59b80ee8df79cec125794949327f29913c328746": Release("24.09", 1),
    "b7a4acc1c8599f9306b519c9a88c044f1b280a07": Release("24.10", 1),
    "e13011fafb65fe8edc503dbc8638b316bc27e2d0": Release("24.11", 1),
    "e552ad997605dd883825106776eba230a6820345": Release("25.01", 1),
    "73375b3bbcb59a5d6ff43f2fafd00b9ecdbe0417": Release("25.02", 1),
    "b216eeee7dd91478745496919e9c0167cc4c41e3": Release("25.03", 1),
    "e13873debc4699d39c6861074b9a3b2a02327f92": Release("25.04", 1),
    "379937e1719b8190f38f3e666e2a8d32c97e221f": Release("25.05", 1),
    "e74a67bba3ee679f778670e17edc21639008ae0a": Release("25.07, 25.08", 1),
    "4bdecd06b3c4b2c0a8fb6603829a8f9f05a42b49": Release("25.09", 1),
    "6424da3b4faa6c8f062da4a48c424fff3f02d42d": Release("main of 2026-07-08", len(FAULTS)),
}


def misfits(commit: str, extensions: t.Collection[str], torch: str, cuda: str) -> list[str]:
    """Say what of a release cannot work, and the oldest later release that has all of it."""
    faults = _faults(commit, extensions, torch, cuda)
    if not faults:
        return []
    commits = list(RELEASES)
    later = commits[commits.index(commit) + 1 :]
    good = next((other for other in later if not _faults(other, extensions, torch, cuda)), "")
    nearest = f"The nearest that does is {RELEASES[good].name}, commit {good} (apex_source)" if good else ""
    about = {"torch": f"PyTorch {torch}", "cuda": f"CUDA {cuda}"}
    return [
        f"{_names(fault.extensions.intersection(extensions))}Apex {RELEASES[commit].name} does not work with "
        f"{about[fault.kind]}: {fault.because}"
        for fault in faults
    ] + ([nearest] if nearest else [])


def _names(extensions: t.Iterable[str]) -> str:
    listed = " and ".join(sorted(extensions))
    return f"{listed} of " if listed else ""


def _faults(commit: str, extensions: t.Collection[str], torch: str, cuda: str) -> list[Fault]:
    release = RELEASES.get(commit)
    has = {"torch": torch, "cuda": cuda}
    return [
        fault
        for fault in (FAULTS[release.mended :] if release else ())
        if (not fault.extensions or fault.extensions.intersection(extensions))
        and has[fault.kind]
        and not within(has[fault.kind], fault.works)
    ]
