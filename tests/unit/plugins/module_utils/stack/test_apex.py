# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module apex_wheel with an environment whose Python is a script: it answers as captured, packs what it gets."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import signal
import sys
import tarfile
import time
import typing as t
import zipfile
from pathlib import Path

import pytest
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import SourceError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex, versions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import ApexError

FIXTURE = Path(__file__).parents[3] / "fixtures" / "apex" / "probe-torch-2.11.0-cu130.txt"
SETUP = """
ENV_TO_FLAG = {"APEX_CPP_EXT": "--cpp_ext", "APEX_CUDA_EXT": "--cuda_ext"}
def get_cuda_bare_metal_version(cuda_dir):
    return nvcc(cuda_dir)
def check_cuda_torch_binary_vs_bare_metal(cuda_dir):
    raise RuntimeError("another CUDA")
if has_flag("--cpp_ext"):
    ext_modules.append(CppExtension("apex_C", ["a.cpp"]))
_, version = get_cuda_bare_metal_version(CUDA_HOME)
if has_flag("--cuda_ext"):
    ext_modules.append(CUDAExtension(name="amp_C", sources=["b.cu"]))
if has_flag("--frontend"):
    subprocess.run(["git", "submodule", "update", "--init", "apex/frontend/"])
    ext_modules.append(CUDAExtension(name="frontend", sources=["c.cu"]))
"""


class World(t.NamedTuple):
    root: Path
    archive: str
    digest: str

    def params(self, **changed: t.Any) -> dict[str, t.Any]:
        found = {name: spec.get("default") for name, spec in apex.SPEC.items()}
        found.update(directory=str(self.root / "wheels"), python=str(self.root / "bin/python"))
        found.update(build_dir=str(self.root), archive=self.archive, architectures=["9.0"])
        return {**found, "source": {"archive": "apex.tar", "sha256": self.digest}, **changed}

    def facts(self, **changed: t.Any) -> None:
        text = FIXTURE.read_text().split(" ", 1)[1]
        (self.root / "bin/facts").write_text(json.dumps({**json.loads(text), **changed}))

    def source(self, text: str, name: str = "apex/setup.py") -> World:
        archive = self.root / f"{abs(hash(text))}.tar"
        with tarfile.open(archive, "w") as content:
            member = tarfile.TarInfo(name)
            member.size = len(text)
            content.addfile(member, io.BytesIO(text.encode()))
        return self._replace(archive=str(archive), digest=hashlib.sha256(archive.read_bytes()).hexdigest())

    def run(self, check: bool = False, **changed: t.Any) -> dict[str, t.Any]:
        return apex.ApexBuilder(self.params(**changed), check).perform()

    def calls(self) -> list[t.Any]:
        return [json.loads(line) for line in (self.root / "bin/calls").read_text().splitlines()]

    def left(self) -> list[str]:
        """Return what a build left behind."""
        kept = {"bin", "wheels", ".apex.lock"}
        there = [*self.root.iterdir(), *((self.root / "wheels").glob("*") if (self.root / "wheels").exists() else [])]
        return [one.name for one in there if one.name not in kept and one.suffix != ".tar"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "bin").mkdir()
    stand_in(tmp_path / "bin/python", "python_with_torch.py")
    (tmp_path / "bin/python").chmod(0o755)
    (tmp_path / "bin/proof").write_text("{}")
    found = World(tmp_path, "", "").source(SETUP)
    found.facts()
    return found


def wheel(result: dict[str, t.Any]) -> dict[str, t.Any]:
    with zipfile.ZipFile(result["wheel"]["path"]) as content:
        return dict(json.loads(content.read("environment.json")))


def test_a_wheel_is_built_proved_and_kept_once(world: World) -> None:
    planned = world.run(check=True)
    assert planned == {"changed": True, "wheel": None, "sources": ["apex"], "tools": [], "interpreter": None}
    assert not (world.root / "wheels").exists()
    made = world.run()
    assert made["changed"]
    assert made["wheel"]["proof"]["summary"] == "apex_C, amp_C imported, not run: no GPU"
    assert made["wheel"]["proof"]["code"] == {}  # this wheel has no compiled module
    assert Path(made["wheel"]["path"]).parent.name.startswith("apex-")
    assert hashlib.sha256(Path(made["wheel"]["path"]).read_bytes()).hexdigest() == made["wheel"]["sha256"]
    assert (wheel(made)["APEX_CPP_EXT"], wheel(made)["APEX_CUDA_EXT"]) == ("1", "1")
    before = len(world.calls())
    for check in (False, True):
        again = world.run(check=check)
        assert not again["changed"]
        assert again["wheel"] == made["wheel"]
        assert again["sources"] == []
    assert len(world.calls()) == before + 2  # nothing but a look at PyTorch
    assert world.left() == [Path(made["wheel"]["path"]).parent.name]


def test_what_the_environment_lacks_is_named_and_unpacked_for_the_build(world: World) -> None:
    world.facts(ninja="")
    planned = world.run(check=True)
    assert planned["tools"] == ["ninja"]
    assert planned["interpreter"]["markers"]["python_version"] == "{}.{}".format(*sys.version_info)
    with pytest.raises(ApexError, match="ninja missing in the environment: give tools"):
        world.run()
    (world.root / "wheels").mkdir()
    with zipfile.ZipFile(world.root / "wheels/ninja-1.13.2-py3-none-any.whl", "w") as content:
        content.writestr("ninja-1.13.2.data/scripts/ninja", "#!/bin/sh")
    made = world.run(tools=str(world.root / "wheels"))
    assert wheel(made)["PYTHONPATH"].endswith("/tools")


def test_another_compiler_makes_another_wheel_and_the_first_stays(world: World) -> None:
    first = world.run()
    world.facts(compiler_version="13.1.0")
    second = world.run()
    assert second["changed"]
    assert Path(first["wheel"]["path"]).exists()
    world.facts()
    assert not world.run()["changed"]


def test_what_does_not_fit_is_refused_before_anything_is_made(world: World) -> None:
    world.facts(cuda="12.8", compiler_version="16.0.1")
    for check in (True, False):
        with pytest.raises(ApexError, match=r"nothing was changed\. nvcc .* is CUDA 13\.0.*12\.8.*too new"):
            world.run(check=check)
    assert not (world.root / "wheels").exists()


def test_a_release_that_cannot_work_is_refused_before_anything_is_made(world: World) -> None:
    (commit,) = (one for one, release in versions.APEX_RELEASES.items() if release.name == "22.03")
    with pytest.raises(ApexError, match=r"nothing was changed\. Apex 22\.03 does not work with PyTorch"):
        world.run(source={"git": "https://github.com/NVIDIA/apex.git", "commit": commit}, check=True)


def test_a_minor_mismatch_is_built_only_when_it_is_allowed(world: World) -> None:
    world.facts(cuda="13.2")
    with pytest.raises(ApexError, match="allow_cuda_mismatch"):
        world.run()
    made = world.run(allow_cuda_mismatch=True)
    assert made["wheel"]["edited"] == "setup.py compares no CUDA versions"
    assert "return  # allow_cuda_mismatch" in wheel(made)["setup"]


def test_only_cpp_ext_needs_no_toolkit(world: World) -> None:
    world.facts(cuda=None, nvcc="", torch="2.13.0+cpu")
    made = world.run(extensions=["cpp_ext"])
    assert made["wheel"]["edited"] == "setup.py asks no nvcc"
    assert wheel(made)["APEX_CUDA_EXT"] == "0"


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"extensions": []}, "extensions is empty"),
        ({"extensions": ["fmha"]}, "no extension fmha; it has cpp_ext, cuda_ext, frontend"),
        ({"extensions": ["frontend"]}, "frontend needs apex/frontend: a git submodule"),
        ({"archive": None}, "archive, the file with Apex's source, is not given"),
        ({"build_through": "slurm", "srun_options": {"-p": "x"}}, "no long option of srun"),
    ],
)
def test_bad_input_leaves_nothing(world: World, changed: dict[str, t.Any], said: str) -> None:
    with pytest.raises(ApexError, match=said):
        world.run(**changed)
    assert world.left() == []


def test_another_source_than_the_pinned_one_is_not_built(world: World) -> None:
    other = world.source(SETUP + "# changed\n")
    with pytest.raises(SourceError, match="is not the source that was asked for: sha256"):
        world.run(archive=other.archive)
    assert world.left() == []


def test_a_submodule_comes_into_its_place(world: World) -> None:
    header = world.source("text", "frontend/include/frontend.h")
    pinned = {"submodules": {"apex/frontend": {"archive": "f.tar", "sha256": header.digest}}}
    with pytest.raises(ApexError, match="its file in submodule_archives"):
        world.run(extensions=["cpp_ext", "frontend"], **pinned)
    made = world.run(extensions=["cpp_ext", "frontend"], submodule_archives={"apex/frontend": header.archive}, **pinned)
    assert made["wheel"]["inputs"]["submodules"] == {"apex/frontend": f"sha256:{header.digest}"}
    outside = {"submodules": {"../x": pinned["submodules"]["apex/frontend"]}, "submodule_archives": {"../x": "f"}}
    with pytest.raises(ApexError, match="a path inside the source"):
        world.run(**outside)


def test_a_failed_build_says_what_the_compiler_said_and_leaves_nothing(world: World) -> None:
    with pytest.raises(
        ApexError, match=r"pip wheel failed on vm: exit status 1\n.*fatal error: cublas_v2\.h: No such file"
    ):
        world.source(SETUP + "# BROKEN\n").run()
    assert world.left() == []


def test_a_wheel_that_computes_wrong_is_not_kept(world: World) -> None:
    (world.root / "bin/proof").write_text(json.dumps({"gpu": "H100", "computed": {"FusedAdam": 7.0}}))
    with pytest.raises(
        ApexError, match="is not kept, because its proof failed: FusedAdam differs from PyTorch 7 times"
    ):
        world.run()
    assert world.left() == []


def test_a_manifest_that_was_cut_short_is_no_wheel(world: World) -> None:
    made = world.run()
    manifest = Path(made["wheel"]["path"]).parent / "manifest.json"
    manifest.write_text(manifest.read_text()[:100])
    assert world.run()["changed"]


def test_through_slurm_all_but_the_first_look_runs_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = stand_in(world.root / "bin/srun", "step.sh", variables="FAKE_SRUN=yes")
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    options = {"build_through": "slurm", "srun_options": {"partition": "gpu"}, "build_dir": None}
    assert world.run(check=True, **options)["changed"]
    assert [where for dummy, where in world.calls()] == [""]
    made = world.run(**options)
    assert [where for dummy, where in world.calls()] == ["", "", "yes", "yes", "yes"]
    again = world.run(**options)
    assert not again["changed"]
    assert again["wheel"] == made["wheel"]
    assert world.calls()[-1][1] == ""


def _build(world: World) -> None:
    world.run()


def _until(seen: t.Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not seen() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert seen()


def test_two_at_once_build_once(world: World) -> None:
    both = [multiprocessing.get_context("fork").Process(target=_build, args=(world,)) for dummy in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(patience(20))
    assert [one.exitcode for one in both] == [0, 0]
    assert [call[0][0] for call in world.calls()].count("-m") == 1
    assert len(world.left()) == 1


def test_a_killed_build_is_not_in_use_and_the_next_one_cleans_up(world: World) -> None:
    slow = world.source(SETUP + "# SLOW\n")
    process = multiprocessing.get_context("fork").Process(target=_build, args=(slow,))
    process.start()
    pid = world.root / "bin/building"
    _until(lambda: pid.exists() and bool(pid.read_text()))
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(patience(10))
    _until(lambda: not Path(f"/proc/{pid.read_text()}").exists())
    left = world.left()
    assert [name for name in left if name.startswith("apex-build-")] == left
    assert not list((world.root / "wheels").glob("apex-*"))
    assert world.run()["changed"]
    assert [name for name in world.left() if name.startswith("apex-build-")] == []
