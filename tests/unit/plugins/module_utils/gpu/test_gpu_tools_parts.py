# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools as proof
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools_recipe

FIXTURES = Path(__file__).parents[3] / "fixtures"

CUDA = test_tools_recipe.Need("nvcc", (), home="/usr/local/cuda", version="13.0.88")
NCCL = test_tools_recipe.Need("NCCL", (), home="/usr", version="2.29.2", library="/usr/lib/x86_64-linux-gnu")
WHEEL = test_tools_recipe.Need("NCCL", (), home="/x/nccl", version="2.29.2", library="/x/nccl/lib", linked=False)
HPCX = test_tools_recipe.Need("MPI", (), home="/opt/hpcx/ompi", version="4.1.7", library="/opt/hpcx/ompi/lib")


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (["8.0"], ["80"]),
        ([9.0, "8.0", "8.0"], ["80", "90"]),
        (["10.0", "9.0a", "sm_75", "120"], ["75", "90a", "100", "120"]),
        ([], []),
    ],
)
def test_architectures(asked: list[t.Any], want: list[str]) -> None:
    assert test_tools_recipe.architectures(asked) == want


def test_nccl_tests_without_mpi_from_the_system_s_nccl() -> None:
    [step] = test_tools_recipe.steps(
        test_tools_recipe.TOOLS["nccl_tests"], ["80", "90"], {"cuda": CUDA, "nccl": NCCL}, "/s", "/b", 8
    )
    assert step.argv == [
        *("make", "-j8", "-C", "/s", "BUILDDIR=/b", "CUDA_HOME=/usr/local/cuda", "NCCL_HOME=/usr"),
        "CUDARTLIB=cudart_static",
        "NVCC_GENCODE=-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90",
        "MPI=0",
    ]
    assert step.environment == {"NVCC_APPEND_FLAGS": "-Xlinker --enable-new-dtags -L/usr/lib/x86_64-linux-gnu"}


def test_nccl_tests_with_mpi_finds_libraries_where_they_are() -> None:
    needs = {"cuda": CUDA, "nccl": WHEEL, "mpi": HPCX}
    [step] = test_tools_recipe.steps(test_tools_recipe.TOOLS["nccl_tests_mpi"], ["90"], needs, "/s", "/b", 1)
    assert step.argv[-2:] == ["MPI=1", "MPI_HOME=/opt/hpcx/ompi"]
    flags = step.environment["NVCC_APPEND_FLAGS"]
    assert "-L/b.names -L/x/nccl/lib -Xlinker -rpath=/x/nccl/lib" in flags
    assert "-L/opt/hpcx/ompi/lib -Xlinker -rpath=/opt/hpcx/ompi/lib" in flags


def test_nvbandwidth_is_configured_then_built() -> None:
    configure, make = test_tools_recipe.steps(
        test_tools_recipe.TOOLS["nvbandwidth"], ["80", "90"], {"cuda": CUDA}, "/w/s", "/w/b", 4
    )
    assert configure.argv[:5] == ["cmake", "-S", "/w/s", "-B", "/w/b"]
    assert "-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real" in configure.argv
    assert make.argv == ["cmake", "--build", "/w/b", "-j4"]
    assert configure.environment == {"GIT_CEILING_DIRECTORIES": "/w"}


def headers(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_nccl_of_a_python_package_is_found_and_known_not_to_link_by_name(tmp_path: Path) -> None:
    headers(
        tmp_path,
        include__nccl_DOT_h="#define NCCL_MAJOR 2\n#define NCCL_MINOR 29\n#define NCCL_PATCH 2\n",
        lib__libnccl_DOT_so_DOT_2="",
    )
    found = test_tools_recipe.nccl(str(tmp_path), "")
    assert (found.version, found.library, found.linked) == ("2.29.2", f"{tmp_path}/lib", False)
    (tmp_path / "lib/libnccl.so").touch()
    assert test_tools_recipe.nccl(str(tmp_path), "").linked


def test_nccl_of_the_distribution_lies_in_a_directory_of_its_architecture(tmp_path: Path) -> None:
    headers(tmp_path, include__nccl_DOT_h="#define NCCL_MAJOR 2\n")
    (tmp_path / "lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "lib/x86_64-linux-gnu/libnccl.so").touch()
    assert test_tools_recipe.nccl("", "", [str(tmp_path)]).library == f"{tmp_path}/lib/x86_64-linux-gnu"


def test_a_header_without_a_library_is_no_nccl(tmp_path: Path) -> None:
    headers(tmp_path, include__nccl_DOT_h="#define NCCL_MAJOR 2\n")
    assert test_tools_recipe.nccl(str(tmp_path), "") == test_tools_recipe.Need(
        "NCCL's header and library", ("libnccl-dev", "libnccl-devel"), looked=str(tmp_path)
    )


@pytest.mark.parametrize(
    ("header", "want"),
    [
        ("#define OMPI_MAJOR_VERSION 4\n#define OMPI_MINOR_VERSION 1\n#define OMPI_RELEASE_VERSION 7\n", "4.1.7"),
        ('#define MPICH_VERSION "4.0.2"\n', "4.0.2"),
    ],
)
def test_mpi_by_its_home(tmp_path: Path, header: str, want: str) -> None:
    headers(tmp_path, include__mpi_DOT_h=header, lib__libmpi_DOT_so="")
    assert (test_tools_recipe.mpi(str(tmp_path)).home, test_tools_recipe.mpi(str(tmp_path)).version) == (
        str(tmp_path),
        want,
    )


def test_stubs_need_the_header_and_both_libraries(tmp_path: Path) -> None:
    home = str(tmp_path)
    headers(tmp_path, include__nvml_DOT_h="", lib64__stubs__libcuda_DOT_so="")
    assert not test_tools_recipe.driver_stubs(home, []).home
    headers(tmp_path, **{"lib64__stubs__libnvidia-ml_DOT_so": ""})
    assert test_tools_recipe.driver_stubs(home, []).library == f"{home}/lib64/stubs"


def test_stubs_without_a_header_are_not_enough(tmp_path: Path) -> None:
    headers(tmp_path, **{"lib64__stubs__libcuda_DOT_so": "", "lib64__stubs__libnvidia-ml_DOT_so": ""})
    assert not test_tools_recipe.driver_stubs(str(tmp_path), []).home


@pytest.mark.parametrize(
    ("version", "found"), [("3.16.3", False), ("3.20.0-rc1", True), ("3.25.1", True), ("4.0.3", True)]
)
def test_cmake_must_be_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, found: bool) -> None:
    answer(tmp_path / "cmake", f"cmake version {version}\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert bool(test_tools_recipe.cmake().home) is found
    assert found or version in test_tools_recipe.cmake().looked


def test_device_files_tell_of_a_gpu(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    assert not test_tools_recipe.has_gpu(str(tmp_path))
    (tmp_path / "nvidia0").touch()
    assert test_tools_recipe.has_gpu(str(tmp_path))


LDD = """\tlinux-vdso.so.1 (0x00007fd0b6965000)
\tlibnvidia-ml.so.1 => not found
\tlibcuda.so.1 => not found
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007fd0b6400000)
"""
OLD_GLIBC = "./x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./x)\n"


def test_what_the_loader_does_not_find() -> None:
    assert proof.absent(LDD) == ["libnvidia-ml.so.1", "libcuda.so.1"]
    assert proof.absent(OLD_GLIBC) == ["version `GLIBC_2.38' not found"]


class Program:
    """A program that prints what it is told to, and an ldd that finds what it is told to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.stubs = root / "made", root / "stubs"
        self.directory.mkdir()
        self.stubs.mkdir()
        self.path = answer(self.directory / "nvbandwidth", "nvbandwidth CLI\n")
        stand_in(root / "ldd", "prints.sh", file=root / "ldd.txt")
        monkeypatch.setenv("PATH", str(root), prepend=":")
        self.libraries = root / "ldd.txt"

    def proved(self, gpu: bool, stubs: bool = True) -> proof.Proof:
        place = proof.ProofHost(gpu, {}, str(self.stubs) if stubs else "")
        return proof.prove(test_tools_recipe.TOOLS["nvbandwidth"], str(self.directory), place)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch)


def test_a_build_host_without_a_driver_loads_the_program_with_stubs(program: Program) -> None:
    program.libraries.write_text(LDD)
    stand_in(program.path, "nvbandwidth_with_stubs.sh")
    assert program.proved(gpu=False).state == "loads"
    answer(program.path, status=127)
    with pytest.raises(test_tools_recipe.ToolError, match="did not print its usage: exit status 127"):
        program.proved(gpu=False)
    assert "not run" in program.proved(gpu=False, stubs=False).summary


def test_a_gpu_host_without_the_driver_s_libraries_cannot_run_it(program: Program) -> None:
    program.libraries.write_text(LDD)
    with pytest.raises(test_tools_recipe.ToolError, match=r"does not find libcuda\.so\.1, libnvidia-ml\.so\.1"):
        program.proved(gpu=True)


@pytest.mark.parametrize("gpu", [False, True])
def test_a_missing_library_is_named(program: Program, gpu: bool) -> None:
    program.libraries.write_text("\tlibboost_program_options.so.1.74.0 => not found\n")
    with pytest.raises(test_tools_recipe.ToolError, match=r"does not find libboost_program_options\.so\.1\.74\.0"):
        program.proved(gpu)


@pytest.mark.parametrize("values", [{"status": 1}, {"out": "something else\n"}, {"signal": "SEGV"}])
def test_a_program_that_cannot_print_its_usage_is_refused(program: Program, values: dict[str, t.Any]) -> None:
    program.libraries.write_text("")
    answer(program.path, **values)
    with pytest.raises(test_tools_recipe.ToolError, match="did not print its usage"):
        program.proved(gpu=False)


def test_a_result_with_a_bad_exit_status_is_none() -> None:
    trial = proof.Trial([], "", [], lambda text: True)
    assert proof.judge(trial, ["/x/nvbandwidth"], Outcome(0, "", "", 1.0), gpu=True).state == "measured"
    assert proof.judge(trial, ["/x/nvbandwidth"], Outcome(1, "", "", 1.0), gpu=True).state == "failed"


def said(name: str, rc: int) -> Outcome:
    read = [FIXTURES / f"{name}{end}" for end in (".txt", ".stderr.txt")]
    return Outcome(rc, *(path.read_text() if path.exists() else "" for path in read), 1.0)


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("all_reduce_perf", said("nccl_tests/captured-no-driver", 2)),
        ("all_reduce_perf", said("nccl_tests/captured-no-driver-mpirun", 2)),
        ("nvbandwidth", said("nvbandwidth/captured-no-device", 1)),
        ("bandwidthTest", said("bandwidth_test/captured-no-driver", 1)),
    ],
)
def test_without_a_gpu_the_lack_of_one_is_the_proof(program: str, outcome: Outcome) -> None:
    trial = proof._TRIALS[program]
    assert proof.judge(trial, [f"/x/{program}"], outcome, gpu=False).state == "no device"


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("all_reduce_perf", said("nccl_tests/captured-bad-option", 0)),
        ("all_reduce_perf", said("nccl_tests/captured-mpirun-no-slots", 1)),
        ("nvbandwidth", said("nvbandwidth/captured-bad-option", 1)),
        ("bandwidthTest", said("bandwidth_test/captured-help", 0)),
    ],
)
@pytest.mark.parametrize("gpu", [False, True])
def test_what_is_neither_a_result_nor_the_lack_of_a_gpu(program: str, outcome: Outcome, gpu: bool) -> None:
    trial = proof._TRIALS[program]
    if gpu:
        assert proof.judge(trial, [f"/x/{program}"], outcome, gpu).state == "failed"
        return
    with pytest.raises(test_tools_recipe.ToolError, match="should only miss a GPU"):
        proof.judge(trial, [f"/x/{program}"], outcome, gpu)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("CUDA driver version is insufficient for CUDA runtime version", "newer than this host's driver"),
        ("no kernel image is available for execution on the device", "not built for this host's GPUs"),
    ],
)
def test_on_a_gpu_a_wrong_build_is_refused(text: str, want: str) -> None:
    outcome = Outcome(2, f"gpu001: Test CUDA failure common.cu:9 '{text}'\n", "", 1.0)
    with pytest.raises(test_tools_recipe.ToolError, match=want):
        proof.judge(proof._TRIALS["all_reduce_perf"], ["/x/all_reduce_perf"], outcome, gpu=True)


def test_a_busy_gpu_is_no_fault_of_the_build() -> None:
    outcome = Outcome(2, "gpu001: Test CUDA failure common.cu:9 'out of memory'\n", "", 1.0)
    judged = proof.judge(proof._TRIALS["all_reduce_perf"], ["/x/all_reduce_perf"], outcome, gpu=True)
    assert judged == proof.Proof("failed", outcome.out.strip())


def test_every_tool_that_can_be_built_is_proved_somehow() -> None:
    assert {tool.proof for tool in test_tools_recipe.TOOLS.values()} == set(proof._TRIALS)
    assert all(
        set(tool.needs)
        <= set(test_tools_recipe.read({"cuda_home": "/n", "nccl_home": "/n", "mpi_home": "/n"}, tool.needs))
        for tool in test_tools_recipe.TOOLS.values()
    )
