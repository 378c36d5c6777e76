# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_test_tools with a toolkit and sources that are scripts; tests/gpu builds the real ones."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import typing as t
from pathlib import Path

import pytest
from stand_in import program, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools_recipe as host

NO_GPU = "gpu001: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'"
# Written like nccl-tests' Makefile: everything that matters is a variable of make.
MAKEFILE = """
all:
\tmkdir -p $(BUILDDIR)
\tcp program $(BUILDDIR)/all_reduce_perf
\tcp program $(BUILDDIR)/alltoall_perf
\tchmod 755 $(BUILDDIR)/*
"""


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def pack(path: Path, files: t.Mapping[str, str], top: str = "nccl-tests-1/") -> str:
    """Write a tarball; return its digest."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has_gpu", lambda: False)
    monkeypatch.setattr(host, "gpus", list)


class Site:
    """A host with a toolkit of scripts, and a source that can be changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        stand_in(root / "cuda/bin/nvcc", "nvcc.sh")
        (root / "nccl/include").mkdir(parents=True)
        (root / "nccl/lib").mkdir()
        (root / "build").mkdir()
        self.nccl("2", "29", "2")
        (root / "nccl/lib/libnccl.so.2").touch()
        self.params: dict[str, t.Any] = {name: option.get("default") for name, option in test_tools.SPEC.items()}
        self.params.update(
            prefix=str(root / "prefix"),
            tools=["nccl_tests"],
            origins=["source"],
            architectures=["8.0"],
            cuda_home=str(root / "cuda"),
            nccl_home=str(root / "nccl"),
            build_dir=str(root / "build"),
            jobs=1,
            timeout=60.0,
        )
        self.source(NO_GPU)

    def nccl(self, *version: str) -> None:
        names = ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
        (self.root / "nccl/include/nccl.h").write_text("".join(f"#define {n} {v}\n" for n, v in zip(names, version)))

    def source(self, said: str, makefile: str = MAKEFILE) -> None:
        archive = self.root / "source.tar.gz"
        digest = pack(archive, {"Makefile": makefile, "program": program("all_reduce_perf.sh", said=said)})
        self.params["archives"] = {"nccl_tests": str(archive)}
        self.params["sources"] = {"nccl_tests": {"archive": "source.tar.gz", "sha256": digest}}

    def run(self, check: bool = False, **changed: t.Any) -> test_tools.Json:
        return test_tools.TestToolsBuilder({**self.params, **changed}, check).perform()

    @property
    def versions(self) -> list[str]:
        return names(self.root / "prefix/versions")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_first_run_builds_and_second_changes_nothing(site: Site) -> None:
    first = site.run()
    [tool] = first["tools"]
    assert (first["changed"], first["sources"], tool["origin"]) == (True, ["nccl_tests"], "source")
    assert tool["proof"] == {"state": "no device", "summary": NO_GPU}
    assert first["diff"] == {"before": {"nccl_tests": ""}, "after": {"nccl_tests": tool["directory"]}}
    binary = site.root / "prefix/bin/alltoall_perf"
    assert os.readlink(binary) == "../current/nccl_tests/alltoall_perf"
    assert binary.resolve() == Path(tool["directory"], "alltoall_perf")
    assert names(site.root / "build") == []
    manifest = json.loads(Path(tool["directory"], "manifest.json").read_text())
    assert manifest["inputs"]["cuda"] == "13.0.88"
    assert manifest["inputs"]["nccl"] == f"2.29.2 in {site.root}/nccl"

    second = site.run()
    assert (second["changed"], second["sources"]) == (False, [])
    assert second["tools"][0]["directory"] == tool["directory"]
    assert second["diff"]["before"] == second["diff"]["after"]


def test_check_mode_tells_and_changes_nothing(site: Site) -> None:
    planned = site.run(check=True, archives={})
    assert (planned["changed"], planned["sources"]) == (True, ["nccl_tests"])
    assert not (site.root / "prefix").exists()
    made = site.run()
    assert planned["tools"][0]["directory"] == made["tools"][0]["directory"]
    assert site.run(check=True)["changed"] is False


@pytest.mark.parametrize("change", ["architectures", "source", "nccl", "cuda"])
def test_every_input_that_changes_builds_again(site: Site, change: str) -> None:
    before = site.run()["tools"][0]["directory"]
    if change == "architectures":
        site.params["architectures"] = ["8.0", "9.0"]
    elif change == "source":
        site.source(f" {NO_GPU}")
    elif change == "nccl":
        site.nccl("2", "30", "1")
    else:
        stand_in(site.root / "cuda/bin/nvcc", "nvcc.sh", build=99)
    result = site.run()
    after = result["tools"][0]["directory"]
    assert result["changed"] and after != before and len(site.versions) == 2
    assert (site.root / "prefix/bin/all_reduce_perf").resolve().parent == Path(after)


def test_going_back_builds_nothing(site: Site) -> None:
    site.run()
    site.run(architectures=["9.0"])
    back = site.run(archives={})
    assert back["changed"] and back["sources"] == []
    assert len(site.versions) == 2


def test_a_host_without_its_toolkit_keeps_what_it_has(site: Site) -> None:
    built = site.run()["tools"][0]["directory"]
    (site.root / "cuda/bin/nvcc").unlink()
    (site.root / "nccl/include/nccl.h").unlink()
    kept = site.run(architectures=[])
    assert (kept["changed"], kept["tools"][0]["directory"]) == (False, built)
    assert "does not tell its architectures, cuda, nccl" in kept["report"][0]
    assert site.run(architectures=["8.0"])["changed"] is False
    with pytest.raises(ValueError, match="nvcc is missing"):
        site.run(architectures=["9.0"])


def test_a_program_that_another_version_lacks_loses_its_link(site: Site) -> None:
    site.run()
    site.source(NO_GPU, MAKEFILE.replace("\tcp program $(BUILDDIR)/alltoall_perf\n", ""))
    site.run()
    assert names(site.root / "prefix/bin") == ["all_reduce_perf"]


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("Segmentation fault", "should only miss a GPU here, but says: Segmentation fault"),
        ("", "should only miss a GPU here, but says: exit status 2: no output"),
    ],
)
def test_a_program_that_fails_its_proof_is_not_used(site: Site, said: str, want: str) -> None:
    good = site.run()["tools"][0]["directory"]
    site.source(said)
    with pytest.raises(ValueError, match=want):
        site.run()
    assert (site.root / "prefix/bin/all_reduce_perf").resolve().parent == Path(good)
    assert len(site.versions) == 1


def test_a_failed_build_says_why_and_leaves_nothing(site: Site) -> None:
    site.source(NO_GPU, "all:\n\techo 'common.cu(12): error: no such thing' >&2; exit 1\n")
    with pytest.raises(ValueError, match=r"(?s)^make .* failed: exit status 2.*common.cu\(12\): error: no such thing"):
        site.run()
    assert not (site.root / "prefix").exists()
    assert names(site.root / "build") == []


def test_a_manifest_that_was_cut_short_is_no_build(site: Site) -> None:
    built = Path(site.run()["tools"][0]["directory"])
    (built / "manifest.json").write_text('{"inputs": {')
    assert site.run()["sources"] == ["nccl_tests"]
    assert json.loads((built / "manifest.json").read_text())["inputs"]


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        ({"cuda_home": "/none"}, "the CUDA compiler nvcc is missing, looked in /none/bin/nvcc"),
        ({"nccl_home": "/none"}, "NCCL's header and library is missing, looked in /none .package libnccl-dev"),
        ({"architectures": ["7.0"]}, "nccl_tests: CUDA 13.0.88 in .*/cuda does not compile for 70 .it does for 80, 90"),
        ({"architectures": []}, "no GPU here tells its compute capability"),
        ({"architectures": ["A100"]}, "'A100' is no compute capability"),
        ({"tools": ["nccl_tests_mpi"], "mpi_home": "/none"}, "nccl_tests_mpi: an MPI is missing, looked in /none"),
        ({"archives": {}}, "archives has no nccl_tests"),
        ({"sources": {}}, "give git and commit, or archive and sha256"),
        ({"sources": {"nccl_tests": {"git": "x", "commit": "v2.19.6"}}}, "must be a full commit id"),
        ({"sources": {"nccl_tests": {"git": "x", "commit": "a" * 40, "sha256": "b" * 64}}}, "give git and commit"),
        ({"sources": {"nccl_tests": {"archive": "x", "sha256": "b" * 64}}}, "is not the source that was asked for"),
        ({"sources": {"nccl_tests": {"git": "x", "commit": "a" * 40}}}, "commit unknown, not aaaa"),
        ({"environment": {"X": True}}, "environment variable X is True"),
    ],
)
def test_what_cannot_work_is_refused_and_changes_nothing(site: Site, changed: dict[str, t.Any], want: str) -> None:
    with pytest.raises(ValueError, match=want):
        site.run(**changed)
    assert not (site.root / "prefix").exists()


def test_nvcc_lists_the_plain_architecture_and_compiles_for_its_own_features(site: Site) -> None:
    assert site.run(architectures=["9.0a"])["changed"]


def test_everything_that_is_missing_is_said_at_once(site: Site) -> None:
    with pytest.raises(
        ValueError, match=r"changed\. nccl_tests, nvbandwidth: .*nvcc.*nccl_tests: NCCL.*nvbandwidth: .*nvml"
    ):
        sources = {**site.params["sources"], "nvbandwidth": {"git": "x", "commit": "a" * 40}}
        site.run(tools=["nccl_tests", "nvbandwidth"], sources=sources, cuda_home="/none", nccl_home="/none")


def test_a_package_that_can_be_installed_is_not_missing_in_the_plan_only(site: Site) -> None:
    wanted = {"nccl_home": "/none", "packages": ["libnccl-dev=2.29.2-1+cuda13.0"]}
    assert site.run(check=True, **wanted)["packages"] == ["libnccl-dev=2.29.2-1+cuda13.0"]
    with pytest.raises(ValueError, match="NCCL"):
        site.run(**wanted)


def test_the_image_stands_in_where_a_build_is_impossible(site: Site) -> None:
    image = site.root / "opt/nccl-tests/build"
    stand_in(image / "all_reduce_perf", "all_reduce_perf.sh", said=NO_GPU)
    wanted: dict[str, t.Any] = {"origins": ["source", "image"], "image_dirs": [str(image)], "cuda_home": "/none"}
    result = site.run(**wanted)
    [tool] = result["tools"]
    assert (result["changed"], tool["origin"], tool["directory"]) == (True, "image", str(image))
    assert tool["proof"]["state"] == "no device" and "nvcc is missing" in tool["why"]
    assert (site.root / "prefix/bin/all_reduce_perf").resolve() == image / "all_reduce_perf"
    assert site.run(**wanted)["changed"] is False
    assert site.run(**{**wanted, "cuda_home": site.params["cuda_home"]})["tools"][0]["origin"] == "source"


def test_the_image_can_be_preferred(site: Site) -> None:
    stand_in(site.root / "opt/all_reduce_perf", "all_reduce_perf.sh", said=NO_GPU)
    result = site.run(origins=["image", "source"], image_dirs=[str(site.root / "opt")])
    assert (result["tools"][0]["origin"], result["tools"][0]["why"]) == ("image", "the image carries it")


@pytest.mark.parametrize(("tool", "mpi"), [("nccl_tests", True), ("nccl_tests_mpi", False)])
def test_an_image_s_build_of_the_other_kind_is_not_taken(
    site: Site, tool: str, mpi: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(site.root / "opt/all_reduce_perf", "all_reduce_perf.sh", said=NO_GPU)
    monkeypatch.setattr(test_tools, "links_mpi", lambda program: mpi)
    with pytest.raises(ValueError, match="the image carries no usable all_reduce_perf with"):
        site.run(tools=[tool], origins=["image"], image_dirs=[str(site.root / "opt")])


def test_an_optional_tool_may_be_nowhere(site: Site) -> None:
    result = site.run(tools=["bandwidth_test"], origins=["source", "image"])
    assert result["changed"] is False
    assert result["tools"][0]["origin"] is None
    assert "the image carries no usable bandwidthTest in /usr/local/cuda" in result["tools"][0]["why"]
