# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
import tarfile
import typing as t
import zipfile
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _sources
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import extras
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.extras import ExtraRequest, ExtrasError

FACTS = {"prefix": "/env", "soabi": "cpython-311", "torch": "2.13.0"}
SOURCE = {"archive": "https://x/a.tgz", "sha256": "0" * 64}


def request(**changes: t.Any) -> ExtraRequest:
    given: dict[str, t.Any] = {
        "directory": Path("/wheels"),
        "python": sys.executable,
        "name": "Some_Project",
        "version": "1.0",
        "source": SOURCE,
        "tools": ["pip"],
    }
    return ExtraRequest(**{**given, **changes})


def test_a_wheel_has_a_place_of_its_own() -> None:
    where = extras.wheel_dir(request(), FACTS)
    assert where.parent == Path("/wheels") and where.name.startswith("some-project-")
    assert extras.wheel_dir(request(python="/other"), FACTS) == where
    assert extras.wheel_dir(request(source={**SOURCE, "archive": "/a.tgz"}), FACTS) == where
    for changes in (
        {"environment": {"A": "1"}},
        {"options": ["--x"]},
        {"editable": True},
        {"tools": []},
        {"source": {**SOURCE, "sha256": "1" * 64}},
    ):
        assert extras.wheel_dir(request(**changes), FACTS) != where
    assert extras.wheel_dir(request(), {**FACTS, "torch": "2.14.0"}) != where


def test_source_that_is_not_pinned() -> None:
    with pytest.raises(ExtrasError, match="source of Some_Project"):
        extras.wheel_dir(request(source={"git": "x", "commit": "main"}), FACTS)


def wheel(path: Path, text: str, name: str = "p-1.dist-info/METADATA") -> Path:
    with zipfile.ZipFile(path, "w") as content:
        content.writestr(name, text)
    return path


def test_metadata(tmp_path: Path) -> None:
    text = "Name: p\nVersion: 1\nRequires-Dist: a>=1\nRequires-Dist: b; extra == 'dev'\nRequires-Dist: c\n\nText\n"
    assert extras.metadata(wheel(tmp_path / "w", text)) == {
        "name": "p",
        "version": "1",
        "requires": ["a>=1", "c"],
    }
    with pytest.raises(ExtrasError, match="is no wheel"):
        extras.metadata(wheel(tmp_path / "x", text, "other"))
    (tmp_path / "y").write_text("")
    with pytest.raises(ExtrasError, match="is no wheel"):
        extras.metadata(tmp_path / "y")


def test_environment_without_torch() -> None:
    with pytest.raises(ExtrasError, match=r"no environment with torch|does not say"):
        extras.facts_of("/bin/false")


SETUP = """
import sys, zipfile
if "--fail" in sys.argv:
    sys.exit("error: cannot build this")
where = sys.argv[sys.argv.index("--dist-dir") + 1]
with zipfile.ZipFile(where + "/some_project-1.0-py3-none-any.whl", "w") as content:
    content.writestr("some_project-1.0.dist-info/METADATA", "Name: some-project\\nVersion: 1.0\\n")
"""


def source(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "setup.py").write_text(SETUP)
    path = tmp_path / "source.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(tmp_path / "setup.py", "project/setup.py")
    return {"archive": str(path), "sha256": _sources.sha256(path)}


def test_build_is_kept_and_not_made_again(tmp_path: Path) -> None:
    pinned = source(tmp_path)
    asked = request(directory=tmp_path / "wheels", source=pinned, tools=[], options=["--quick"])
    made = extras.build(asked, FACTS, pinned["archive"], "", 60)
    where = extras.wheel_dir(asked, FACTS)
    assert extras.stored_manifest(where) == made and (where / made["file"]).is_file()
    assert sorted(path.name for path in where.iterdir()) == ["manifest.json", made["file"]]
    assert extras.build(asked, FACTS, "/nowhere", "", 60) == made


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"options": ["--fail"]}, "cannot build this"),
        ({"version": "2.0"}, "is some-project 1.0: correct its entry"),
        ({"name": "other"}, "the source of other"),
        ({"tools": ["cython"]}, "cython"),
    ],
)
def test_build_that_failed_leaves_nothing(tmp_path: Path, changes: t.Any, said: str) -> None:
    pinned = source(tmp_path)
    given: dict[str, t.Any] = {"directory": tmp_path / "wheels", "source": pinned, "tools": [], "options": ["-q"]}
    with pytest.raises(ExtrasError, match=said):
        extras.build(request(**{**given, **changes}), FACTS, pinned["archive"], "", 60)
    assert [path for path in (tmp_path / "wheels").iterdir() if not path.name.startswith(".")] == []


def test_archive_of_something_else(tmp_path: Path) -> None:
    pinned = source(tmp_path)
    asked = request(directory=tmp_path / "wheels", source={**pinned, "sha256": "0" * 64}, tools=[], options=["-q"])
    with pytest.raises(ExtrasError, match="not the source that was asked for"):
        extras.build(asked, FACTS, pinned["archive"], "", 60)


def test_what_has_to_be_resolved() -> None:
    packages = [{"name": "a", "version": "1"}, {"name": "b", "version": "2", "source": SOURCE}]
    wheels: list[dict[str, t.Any]] = [
        {"name": "B", "requires": ["C_c>=1", "numpy<3", "Jinja2==3.1.1"], "relax": ["jinja2"]},
        {"name": "c-c", "requires": ["numpy<3", "b"]},
    ]
    assert extras.inputs(packages, wheels) == ["a==1", "jinja2", "numpy<3"]
    assert extras.inputs([], []) == []


def test_what_is_installed_stays() -> None:
    assert extras.constraints({"Typing_Extensions": "4", "a": "1+cpu"}) == ["a==1+cpu", "typing-extensions==4"]
    lock = "# by uv\na==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\nnumpy==2 \\\n    --hash=sha256:3\nz==1\n"
    assert (
        extras.without_installed(lock, {"NumPy": "2"}) == "a==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\nz==1\n"
    )


BASE: dict[str, t.Any] = {"packages": {"torch": "2.13.0+cpu", "numpy": "2"}, "python": "3.11", "machine": "x86_64"}


def uv(monkeypatch: pytest.MonkeyPatch, *outcomes: tuple[int | None, str]) -> list[dict[str, str]]:
    """Let uv answer so, and return what it was given."""
    seen, answers = [], list(outcomes)

    def run(argv: t.Sequence[str], timeout: float) -> Outcome:
        files = {argv[at - 1]: Path(argv[at]).read_text() for at in range(1, len(argv)) if Path(argv[at]).is_file()}
        seen.append(files)
        Path(argv[argv.index("--output-file") + 1]).write_text("new==1\nnumpy==2\n")
        rc, said = answers.pop(0)
        return Outcome(rc, "", said, 1.0)

    monkeypatch.setattr(extras._process, "run", run)
    return seen


def test_lock_is_resolved_with_and_without_local_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = uv(monkeypatch, (0, ""), (0, ""))
    assert extras.compile_lock("uv", ["new"], BASE, 60) == "new==1\n"
    assert seen[0]["--constraint"] == "numpy==2\ntorch==2.13.0\n" and seen[0]["--override"] == ""
    assert seen[1]["--constraint"] == "numpy==2\n" and seen[1]["--override"] == "torch; python_version < '0'\n"


def test_what_was_built_is_not_locked_when_something_else_requires_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = uv(monkeypatch, (0, ""), (0, ""))
    base = extras.with_wheels(BASE, [{"name": "New", "version": "1", "requires": []}])
    assert extras.compile_lock("uv", ["other"], base, 60) == ""
    assert seen[1]["--constraint"] == "new==1\nnumpy==2\n"


def test_version_that_the_index_lacks_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    uv(monkeypatch, (1, "there is no version of torch==2.13.0 and"), (0, ""))
    assert extras.compile_lock("uv", ["new"], BASE, 60) == "new==1\n"


@pytest.mark.parametrize(
    "outcomes, said",
    [
        ([(1, "you require torch<2\nand torch==2.13.0")], "new do not fit.*torch<2 and torch==2.13.0"),
        ([(0, ""), (1, "numpy")], "do not fit"),
        ([(0, ""), (None, "uv cannot be started")], "install uv on the control host"),
    ],
)
def test_conflicts_are_named(monkeypatch: pytest.MonkeyPatch, outcomes: t.Any, said: str) -> None:
    uv(monkeypatch, *outcomes)
    with pytest.raises(ExtrasError, match=said):
        extras.compile_lock("uv", ["new"], BASE, 60)


def test_machine_without_a_platform() -> None:
    with pytest.raises(ExtrasError, match="riscv64"):
        extras.compile_lock("uv", ["new"], {**BASE, "machine": "riscv64"}, 60)


def test_installed_packages() -> None:
    assert "pytest" in extras.installed(sys.executable)["packages"]
    with pytest.raises(ExtrasError, match="does not say what it has"):
        extras.installed("/bin/false")
