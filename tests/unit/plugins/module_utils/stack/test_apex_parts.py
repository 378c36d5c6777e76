# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is decided about a build of Apex; the setup.py below is our own, in the two shapes that releases have."""

from __future__ import annotations

import json
import math
import re
import sys
import types
import typing as t
import zipfile
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import (
    apex,
    apex_probe,
    apex_proof,
    apex_recipe,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import ApexError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "apex"
# Like the releases up to 25.08: options only, and an extension whose headers come as a submodule.
OLD = """
import sys
def get_cuda_bare_metal_version(cuda_dir):
    return subprocess.check_output([cuda_dir + "/bin/nvcc"])
def check_cuda_torch_binary_vs_bare_metal(cuda_dir):
    raise RuntimeError("another CUDA")
if "--cpp_ext" in sys.argv or "--cuda_ext" in sys.argv:
    print("either")
if "--cpp_ext" in sys.argv:
    ext_modules.append(CppExtension("apex_C", ["a.cpp"]))
if "--cuda_ext" in sys.argv:
    check_cuda_torch_binary_vs_bare_metal(CUDA_HOME)
    ext_modules.append(CUDAExtension(name="amp_C", sources=["b.cu"]))
    if int(bare_metal_major) >= 11:
        ext_modules.append(CUDAExtension(name="dense_cuda", sources=["c.cu"]))
if "--search" in sys.argv:
    if CUDA_HOME is None:
        raise RuntimeError("no nvcc")
    else:
        ext_modules.append(CUDAExtension(name="search_cuda", sources=["d.cu"]))
if "--attention" in sys.argv:
    subprocess.run(["git", "submodule", "update", "--init", "apex/csrc/cutlass/"])
    ext_modules.append(CUDAExtension(name="attention", sources=["e.cu"]))
if "--parallel" in sys.argv:
    print("no extension")
"""
# Like those since 25.09: variables, and nvcc is asked whatever is built.
NEW = """
ENV_TO_FLAG = {"APEX_CPP_EXT": "--cpp_ext", "APEX_CUDA_EXT": "--cuda_ext"}
def has_flag(flag, env_var):
    return flag in sys.argv
def get_cuda_bare_metal_version(cuda_dir):
    '''Ask.'''
    return nvcc(cuda_dir)
def check_cuda_torch_binary_vs_bare_metal(cuda_dir):
    raise RuntimeError("another CUDA")
if has_flag("--cpp_ext", "APEX_CPP_EXT"):
    ext_modules.append(CppExtension("apex_C", ["a.cpp"]))
_, bare_metal_version = get_cuda_bare_metal_version(CUDA_HOME)
if has_flag("--cuda_ext", "APEX_CUDA_EXT"):
    ext_modules.append(CUDAExtension(name="amp_C", sources=["b.cu"]))
if has_flag("--norm", "APEX_NORM"):
    if check_cudnn_version_and_warn("--norm", 8500):
        ext_modules.append(CUDAExtension(name="norm_lib", sources=["c.cpp"]))
parallel = os.environ.get("APEX_PARALLEL_BUILD")
"""


def facts(name: str = "probe-torch-2.11.0-cu130", **changed: t.Any) -> dict[str, t.Any]:
    found = apex_recipe.parse((FIXTURES / f"{name}.txt").read_text(), "python", "")
    return {**found, **changed}


def wish(**changed: t.Any) -> apex_recipe.ApexRequest:
    plain = apex_recipe.ApexRequest("/opt/env/bin/python", True, ["9.0"], False, True, 2048, "/var/tmp")
    return plain._replace(**changed)


def params(**changed: t.Any) -> dict[str, t.Any]:
    found: dict[str, t.Any] = {
        "python": "/opt/env/bin/python",
        "source": {"git": "x", "commit": "a" * 40},
        "submodules": {},
        "extensions": ["cuda_ext", "cpp_ext"],
        "architectures": ["9.0", "8.0"],
        "allow_cuda_mismatch": False,
        "compiler": None,
        "memory_per_job": 3072,
        "jobs": None,
        "environment": {},
    }
    return {**found, **changed}


def build(text: str = NEW, names: t.Sequence[str] = ("cpp_ext", "cuda_ext"), **changed: t.Any) -> apex_recipe.ApexBuild:
    release = apex_recipe.read(text)
    chosen = apex_recipe.choose(release, names)
    return apex_recipe.ApexBuild(params(**changed), facts(), release, chosen, "/s", "/s/apex", "26.3", "/usr/bin")


def test_an_old_release_tells_its_extensions_and_what_they_make() -> None:
    release = apex_recipe.read(OLD)
    assert not release.variables
    assert not release.asks_nvcc
    assert sorted(release.extensions) == ["attention", "cpp_ext", "cuda_ext", "search"]
    cuda, search, attention = (release.extensions[name] for name in ("cuda_ext", "search", "attention"))
    assert (cuda.modules, cuda.maybe, cuda.cuda) == (["amp_C"], ["dense_cuda"], True)
    assert (search.modules, search.maybe) == (["search_cuda"], [])
    assert attention.submodules == ["apex/csrc/cutlass"]
    assert not release.extensions["cpp_ext"].cuda


def test_a_new_release_tells_its_variables() -> None:
    release = apex_recipe.read(NEW)
    assert release.variables == {"cpp_ext": "APEX_CPP_EXT", "cuda_ext": "APEX_CUDA_EXT"}
    assert release.asks_nvcc
    assert release.checks_versions
    assert release.extensions["norm"].maybe == ["norm_lib"]


@pytest.mark.parametrize("text", ["", "print(", "if x:\n  pass", "\0"])
def test_what_is_no_setup_of_apex_is_refused(text: str) -> None:
    with pytest.raises(ApexError, match=r"its setup\.py"):
        apex_recipe.read(text)


def test_an_extension_that_a_release_has_not_is_refused_with_those_it_has() -> None:
    with pytest.raises(ApexError, match="no extension fmha, pyprof; it has attention, cpp_ext, cuda_ext, search"):
        apex_recipe.choose(apex_recipe.read(OLD), ["pyprof", "cpp_ext", "fmha"])


@pytest.mark.parametrize("text", [OLD, NEW])
def test_edited_functions_leave_at_once(text: str) -> None:
    space: dict[str, t.Any] = {}
    head = text.split("\nif ")[0]
    exec(apex_recipe.without_toolkit(apex_recipe.without_version_check(head)), space)
    assert space["get_cuda_bare_metal_version"](None) == ("", None)
    assert space["check_cuda_torch_binary_vs_bare_metal"]("/nowhere") is None


def test_a_function_that_is_not_there_cannot_be_edited() -> None:
    with pytest.raises(ApexError, match="no function check_cuda_torch_binary_vs_bare_metal"):
        apex_recipe.without_version_check("import sys\n")


def test_captured_facts_of_a_host_fit() -> None:
    found = facts()
    assert apex_recipe.nvcc(found) == "13.0.88"
    assert apex_recipe.nvcc_release(found) == "13.0"
    assert apex_recipe.compiler(found) == ("g++", "12.2.0")
    assert apex_recipe.problems(found, wish()) == []
    assert apex_recipe.missing_tools(found) == []


def test_headers_that_a_toolkit_lacks_come_from_the_wheels_of_pytorch() -> None:
    found = facts()
    assert "cublas_v2.h" not in found["cuda_headers"]
    assert [Path(one).parent.name for one in apex_recipe.includes(found)] == [
        *("cu13", "cudnn", "cusparselt", "nccl", "nvshmem")
    ]
    whole = {**found, "cuda_headers": found["includes"]["/opt/env/lib/python3.11/site-packages/nvidia/cu13/include"]}
    assert "cu13" not in " ".join(apex_recipe.includes(whole))


CASES: dict[str, tuple[dict[str, t.Any], dict[str, t.Any], str]] = {
    "no torch": ({"torch": None, "torch_error": "ImportError: gone"}, {}, "cannot import torch .ImportError: gone"),
    "cpu torch": ({"cuda": None}, {}, "is built without CUDA: of Apex only cpp_ext"),
    "no nvcc": (
        {"nvcc": ""},
        {},
        "13.0/bin/nvcc is missing or cannot be run on .*give cuda_home, a toolkit of CUDA 13.0",
    ),
    "minor": (
        {"cuda": "13.2"},
        {},
        "is CUDA 13.0, PyTorch 2.11.0.cu130 is built with CUDA 13.2: .*allow_cuda_mismatch",
    ),
    "major": ({"cuda": "12.8"}, {"allow_mismatch": True}, "another major version, which PyTorch itself refuses"),
    "no archs": ({}, {"architectures": []}, "no architectures are given"),
    "old arch": ({"archs": "sm_70"}, {"architectures": ["7.0"]}, "does not compile for 7.0 .it does for 7.5, 8.0"),
    "torch refuses": ({"refused": "Unknown CUDA arch (9.9)"}, {}, "does not build for 9.0: Unknown CUDA arch"),
    "no code": ({"archs": "sm_75 sm_80"}, {}, "has no code for 9.0, only sm_75 sm_80"),
    "no headers": ({"includes": {}}, {}, "cublas_v2.h, cublasLt.h, cusparse.h, cusolverDn.h missing"),
    "new gcc": (
        {"compiler_version": "16.1.0"},
        {},
        r"too new: .*6\.0\.0 or newer and older than 16\.0 .*GCC_VERSIONS for",
    ),
    "old gcc": ({"compiler_version": "5.4.0"}, {}, "too old"),
    "old gcc, cpp": ({"compiler_version": "4.8.5"}, {"cuda": False}, "too old: .*MINIMUM_GCC_VERSION"),
    "no gcc": ({"compiler_version": ""}, {}, "compiler c.. cannot be run"),
    "no Python.h": ({"headers": False}, {}, "Python.h is missing in /opt/python"),
    "disk": ({"free": 10 << 20}, {}, "has 10 MiB free, not 2048"),
    "tools": ({"ninja": ""}, {"tools": False}, "ninja missing in the environment"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_named_with_what_can_be_done(name: str) -> None:
    changed, asked, said = CASES[name]
    found = apex_recipe.problems(facts(**changed), wish(**asked))
    assert len(found) == 1
    assert re.search(said, found[0]), found


def test_the_toolkit_of_the_environment_comes_before_that_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apex_probe.sysconfig, "get_path", lambda dummy: str(tmp_path))
    monkeypatch.setattr(apex_probe.shutil, "which", lambda dummy: "/opt/cuda-13.0/bin/nvcc")
    host = "/usr/local/cuda" if Path("/usr/local/cuda/bin/nvcc").is_file() else "/opt/cuda-13.0"
    assert apex_probe.toolkit("") == host
    (tmp_path / "nvidia/cu13/bin").mkdir(parents=True)
    assert apex_probe.toolkit("") == host
    (tmp_path / "nvidia/cu13/bin/nvcc").touch()
    assert apex_probe.toolkit("") == str(tmp_path / "nvidia/cu13")
    assert apex_probe.toolkit("/given") == "/given"


def test_all_that_does_not_fit_is_named_at_once() -> None:
    found = apex_recipe.problems(facts(cuda="12.8", compiler_version="16.0.1", free=0), wish(architectures=["7.0"]))
    assert len(found) == 5


@pytest.mark.parametrize(
    "changed, asked",
    [
        ({"cuda": "13.2"}, {"allow_mismatch": True}),
        ({"archs": "sm_80"}, {"architectures": ["8.6"]}),
        ({"archs": "sm_75 compute_80"}, {}),
        ({"archs": ""}, {}),
        ({"compiler_name": "Debian clang version 19.1", "compiler_version": "19.1"}, {}),
        ({"bounds": {}}, {}),
        ({"nvcc": ""}, {"cuda": False}),
        ({}, {"architectures": ["9.0a", "10.0+PTX"]}),
    ],
)
def test_what_fits_is_not_refused(changed: dict[str, t.Any], asked: dict[str, t.Any]) -> None:
    assert apex_recipe.problems(facts(**changed), wish(**asked)) == []


def test_a_node_that_was_not_asked_is_not_judged() -> None:
    found = {key: value for key, value in facts().items() if key in ("torch", "cuda", "tools")}
    assert apex_recipe.problems(found, wish()) == []
    assert apex_recipe.missing_tools(found) == ["ninja"]


@pytest.mark.parametrize(
    "setuptools, missing", [("84.2.1", []), ("65.5.0", ["wheel"]), (None, ["setuptools", "wheel"])]
)
def test_wheel_is_needed_where_setuptools_does_not_pack(setuptools: str | None, missing: list[str]) -> None:
    tools = {"pip": "24.0", "setuptools": setuptools, "wheel": None, "packaging": "26.3"}
    assert apex_recipe.missing_tools({"tools": tools, "ninja": "1.13"}) == missing


@pytest.mark.parametrize("memory, most, jobs", [(32, None, 4), (7, None, 2), (1, None, 1), (32, 3, 3), (7, 8, 2)])
def test_as_many_compilers_run_as_memory_allows(memory: int, most: int | None, jobs: int) -> None:
    assert apex_recipe.jobs({"memory": memory << 30, "cpus": 4}, 3072, most) == jobs


@pytest.mark.parametrize("output", ["", "Traceback", "HPCAI_APEX {", "HPCAI_APEX 3"])
def test_a_python_that_tells_nothing_is_refused(output: str) -> None:
    with pytest.raises(ApexError, match=r"nothing was changed\. /p cannot tell what it offers: exit status 1"):
        apex_recipe.parse(output, "/p", "exit status 1")


def test_architectures_are_put_in_order() -> None:
    assert apex_recipe.architectures(["10.0", "9.0a", 9.0, "8.0+PTX", "9.0"]) == ["8.0+PTX", "9.0", "9.0a", "10.0"]
    for wrong in ("sm_90", "90", "9.0b", "Hopper"):
        with pytest.raises(ApexError, match="no compute capability"):
            apex_recipe.architectures([wrong])


def test_the_digest_changes_with_what_decides_and_with_nothing_else() -> None:
    plain = apex_recipe.inputs(params(), facts())
    assert apex_recipe.inputs(params(extensions=["cpp_ext", "cuda_ext"], jobs=2), facts(free=1)) == plain
    for changed in (
        apex_recipe.inputs(params(architectures=["9.0"]), facts()),
        apex_recipe.inputs(params(extensions=["cuda_ext"]), facts()),
        apex_recipe.inputs(params(source={"archive": "a", "sha256": "b" * 64}), facts()),
        apex_recipe.inputs(params(submodules={"apex/x": {"git": "x", "commit": "c" * 40}}), facts()),
        apex_recipe.inputs(params(allow_cuda_mismatch=True), facts()),
        apex_recipe.inputs(params(environment={"CXXFLAGS": "-O1"}), facts()),
        apex_recipe.inputs(params(), facts(torch="2.11.1+cu130")),
        apex_recipe.inputs(params(), facts(abi="cpython-312-x86_64-linux-gnu")),
        apex_recipe.inputs(params(), facts(compiler_version="12.3.0")),
        apex_recipe.inputs(params(), facts(nvcc="release 13.0, V13.0.99")),
    ):
        assert apex_recipe.digest(changed) != apex_recipe.digest(plain)
        assert not apex_recipe.same(changed, plain)


def test_only_cpp_ext_does_not_depend_on_the_toolkit() -> None:
    one = apex_recipe.inputs(params(extensions=["cpp_ext"]), facts())
    assert one == apex_recipe.inputs(params(extensions=["cpp_ext"], architectures=["8.0"]), facts(nvcc=""))


def test_a_login_node_finds_what_a_node_built_with_a_toolkit_that_it_has_not() -> None:
    alone = {key: value for key, value in facts().items() if key not in ("compiler", "nvcc")}
    there = apex_recipe.inputs(params(), facts())
    assert apex_recipe.same(apex_recipe.inputs(params(), alone), there)
    assert not apex_recipe.same(apex_recipe.inputs(params(), {**alone, "torch": None}), there)


def test_a_new_release_is_asked_by_variables() -> None:
    argv = apex_recipe.command(build(), ["srun"])
    assert argv[:5] == ["srun", "/opt/env/bin/python", "-m", "pip", "wheel"]
    assert {"--no-build-isolation", "--no-deps"} < set(argv)
    assert not [word for word in argv if "_ext" in word]
    found = apex_recipe.variables(build(names=["cuda_ext"], environment={"NVCC_APPEND_FLAGS": "--threads 2", "N": 2}))
    assert (found["APEX_CPP_EXT"], found["APEX_CUDA_EXT"], found["APEX_ALL_CONTRIB_EXT"]) == ("0", "1", "0")
    assert (found["TORCH_CUDA_ARCH_LIST"], found["N"]) == ("8.0;9.0", "2")
    assert found["PATH"].split(":")[:3] == ["/s/tools/bin", "/usr/local/cuda-13.0/bin", "/opt/env/bin"]


@pytest.mark.parametrize(
    ("cpus", "most", "modules", "each"),
    [(16, None, 4, 4), (96, None, 5, 6), (16, 6, 2, 3), (2, None, 1, 2), (1, None, 1, 1)],
)
def test_modules_are_built_abreast_by_no_more_compilers_than_there_may_be(
    cpus: int, most: int | None, modules: int, each: int
) -> None:
    """96 CPUs are not all used, for there is memory for 32 compilers at a time."""
    there = facts(cpus=cpus, memory=32 * 3072 << 20)
    found = apex_recipe.variables(build(jobs=most)._replace(facts=there))
    assert (found["APEX_PARALLEL_BUILD"], found["MAX_JOBS"]) == (str(modules), str(each))
    assert modules * each <= min(cpus, most or cpus, 32)
    before = NEW.replace('"APEX_PARALLEL_BUILD"', '"PARALLEL"')
    found = apex_recipe.variables(build(before, jobs=most)._replace(facts=there))
    assert (found["APEX_PARALLEL_BUILD"], found["MAX_JOBS"]) == ("1", str(min(cpus, most or cpus, 32)))


@pytest.mark.parametrize(
    "pip, options",
    [
        ("26.3", ["--use-pep517", "--config-settings=--build-option=--cpp_ext"]),
        ("23.1.2", ["--use-pep517", "--config-settings=--build-option=--cpp_ext"]),
        ("22.3.1", ["--no-use-pep517", "--global-option=--cpp_ext"]),
    ],
)
def test_an_old_release_is_asked_by_options_as_pip_knows_them(pip: str, options: list[str]) -> None:
    argv = apex_recipe.command(build(OLD, ["cpp_ext"])._replace(pip=pip), [])
    assert argv[0] == "sh"
    assert [word for word in argv if "517" in word or "option" in word] == options


@pytest.mark.parametrize(
    "given, c",
    [
        ("/usr/bin/g++-12", "/usr/bin/gcc-12"),
        ("clang++-19", "clang-19"),
        ("/x/x86_64-linux-gnu-g++", "/x/x86_64-linux-gnu-gcc"),
    ],
)
def test_the_c_compiler_belongs_to_the_given_one(given: str, c: str) -> None:
    assert apex_recipe.compilers(given) == {"CXX": given, "CC": c}


def test_setup_is_edited_only_where_it_must_be() -> None:
    new, old = apex_recipe.read(NEW), apex_recipe.read(OLD)
    cpp, both = [apex_recipe.choose(new, names) for names in (["cpp_ext"], ["cpp_ext", "cuda_ext"])]
    assert apex_recipe.edit(NEW, new, both, False) == (NEW, "")
    assert apex_recipe.edit(OLD, old, cpp, False) == (OLD, "")
    assert apex_recipe.edit(NEW, new, cpp, False)[1] == "setup.py asks no nvcc"
    assert apex_recipe.edit(NEW, new, both, True)[1] == "setup.py compares no CUDA versions"


def test_an_extension_without_its_submodule_is_refused() -> None:
    chosen = apex_recipe.choose(apex_recipe.read(OLD), ["attention", "cpp_ext"])
    assert "attention needs apex/csrc/cutlass: a git submodule" in apex_recipe.missing_sources(chosen, {})
    assert apex_recipe.missing_sources(chosen, {"apex/csrc/cutlass": {}}) == ""


def test_srun_is_given_one_task_and_the_users_options() -> None:
    assert apex_recipe.prefix("local", {"gres": "x"}, "apex") == []
    assert apex_recipe.prefix("slurm", {"cpus_per_task": 8, "exclusive": True, "x": False}, "apex") == [
        *("srun", "--job-name=apex", "--nodes=1", "--ntasks=1", "--cpus-per-task=8", "--exclusive")
    ]
    with pytest.raises(ApexError, match="no long option of srun"):
        apex_recipe.prefix("slurm", {"-p": "gpu"}, "apex")


@pytest.mark.parametrize(
    "ours, theirs, excess",
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0 + 5e-4], [1.0], 0.25),
        ([1.1], [1.0], 50.0),
        ([math.nan], [1.0], math.inf),
        ([1.0], [math.inf], math.inf),
        ([1.0], [1.0, 1.0], math.inf),
        ([], [], math.inf),
    ],
)
def test_results_are_compared_in_units_of_what_is_allowed(
    ours: list[float], theirs: list[float], excess: float
) -> None:
    assert apex_proof.excess(ours, theirs, (1e-3, 1e-3)) == pytest.approx(excess)


def proved(**changed: t.Any) -> str:
    found = {"imported": ["apex", "apex_C", "amp_C"], "failed": {}, "absent": [], "computed": {}, "gpu": None}
    return f"srun: hello\n{apex_proof.MARK}{json.dumps({**found, **changed})}\n"


BOTH = apex_recipe.choose(apex_recipe.read(NEW), ["cpp_ext", "cuda_ext"])


def test_without_a_gpu_modules_are_only_imported() -> None:
    found = apex.judge(proved(computed={"flatten": 0.0}), "", BOTH)
    assert found["state"] == "imported"
    assert found["summary"] == "apex_C, amp_C imported, not run: no GPU, flatten off by 0 of what is allowed"
    assert found["modules"] == ["apex_C", "amp_C"]


def test_on_a_gpu_results_count() -> None:
    found = apex.judge(proved(gpu="H100", computed={"FusedAdam": 0.1}), "", BOTH)
    assert found["state"] == "computed"
    assert found["summary"].endswith("FusedAdam off by 0.1 of what is allowed (on H100)")
    only = apex.judge(proved(computed={"flatten": 0.0}), "", BOTH[:1])
    assert only["state"] == "computed"


@pytest.mark.parametrize(
    "changed, said",
    [
        (
            {"failed": {"amp_C": "ImportError: undefined symbol"}},
            "amp_C cannot be imported: ImportError: undefined symbol",
        ),
        ({"imported": ["apex", "apex_C"]}, "cuda_ext was asked for, but"),
        ({"gpu": "H100", "computed": {"FusedAdam": 3.0}}, "FusedAdam differs from PyTorch 3 times as much"),
        ({"gpu": "H100", "computed": {"FusedAdam": math.nan}}, "FusedAdam differs"),
        (
            {"gpu": "H100", "computed": {"FusedAdam": "RuntimeError: no kernel image"}},
            "FusedAdam cannot be run: Runtime",
        ),
    ],
)
def test_a_bad_wheel_is_refused(changed: dict[str, t.Any], said: str) -> None:
    with pytest.raises(ApexError, match=said):
        apex.judge(proved(**changed), "", BOTH)


def test_a_proof_that_says_nothing_is_none() -> None:
    with pytest.raises(ApexError, match="not proved: exit status 139"):
        apex.judge("", "exit status 139", BOTH)


def wheel(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as content:
        for name, text in files.items():
            content.writestr(name, text)
    return path


def test_tools_are_unpacked_beside_the_build(tmp_path: Path) -> None:
    wheel(tmp_path / "pip-26.3-py3-none-any.whl", **{"pip/__init__.py": ""})
    wheel(tmp_path / "ninja-1.13.2-py3-none-any.whl", **{"ninja-1.13.2.data/scripts/ninja": "#!/bin/sh\n"})
    assert apex.provide(["pip", "ninja"], str(tmp_path), tmp_path / "tools") == "26.3"
    assert (tmp_path / "tools/bin/ninja").stat().st_mode & 0o111
    assert (tmp_path / "tools/pip/__init__.py").is_file()
    assert apex.provide([], None, tmp_path / "none") == ""


def test_a_tool_that_is_not_there_or_no_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApexError, match="one wheel of ninja, not 0"):
        apex.provide(["ninja"], str(tmp_path), tmp_path / "tools")
    (tmp_path / "wheel-0.48.0-py3-none-any.whl").write_text("cut short")
    with pytest.raises(ApexError, match="cannot be unpacked"):
        apex.provide(["wheel"], str(tmp_path), tmp_path / "more")


@pytest.mark.parametrize("unpacked, own, version", [("26.3", None, "26.3"), ("", "23.2.1", "23.2.1")])
def test_the_pip_that_builds_is_known(unpacked: str, own: str | None, version: str) -> None:
    assert apex.pip_version(unpacked, {"tools": {"pip": own}}) == version


def test_the_programs_that_compare_tell_right_from_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks for GPUs, with PyTorch's own classes in the place of Apex's."""
    torch = pytest.importorskip("torch")

    class Idle(torch.optim.AdamW):
        def step(self, closure: t.Any = None) -> None:
            """Forget to."""

    fake = types.SimpleNamespace(FusedAdam=torch.optim.AdamW, FusedLayerNorm=torch.nn.LayerNorm)
    for name in ("apex", "apex.optimizers", "apex.normalization"):
        monkeypatch.setitem(sys.modules, name, fake)
    assert apex_proof.fused_adam(torch, "cpu") == 0
    assert apex_proof.fused_layer_norm(torch, "cpu") == 0
    monkeypatch.setitem(sys.modules, "apex.optimizers", types.SimpleNamespace(FusedAdam=Idle))
    assert apex_proof.fused_adam(torch, "cpu") > 1
