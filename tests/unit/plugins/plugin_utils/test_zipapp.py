# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node agent as one file: the same bytes anywhere, and it runs with nothing but Python."""

from __future__ import annotations

import ast
import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import main as agent
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _zipapp
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import ProgramError, Sources
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import (
    INSTALLED,
    UNPACKED,
    build,
    main,
    modules,
    store,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import agent as agent_at


@pytest.fixture(scope="module")
def data() -> bytes:
    return build()


@pytest.fixture
def agent_file(data: bytes, tmp_path: Path) -> Path:
    return store(data, tmp_path)


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-IS", str(path), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=patience(60), cwd="/")


def test_two_builds_are_the_same_bytes(data: bytes) -> None:
    assert build() == data


def test_entries_are_sorted_and_carry_no_time_of_the_build(agent_file: Path) -> None:
    with zipfile.ZipFile(agent_file) as archive:
        entries = archive.infolist()
    assert [one.filename for one in entries] == sorted(one.filename for one in entries)
    assert {one.date_time for one in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {one.compress_type for one in entries} == {zipfile.ZIP_STORED}


def test_name_is_the_digest_and_a_damaged_copy_is_written_again(data: bytes, tmp_path: Path) -> None:
    path = store(data, tmp_path)
    path.write_bytes(b"half of it")
    assert store(data, tmp_path) == path
    assert path.read_bytes() == data
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def small(root: Path, text: str) -> Sources:
    (root / "agent").mkdir(parents=True, exist_ok=True)
    (root / "agent/main.py").write_text(text)
    return Sources(root)


def test_it_is_built_once_and_again_for_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, sources = tmp_path / "cache", small(tmp_path / "sources", "A = 1\n")
    path = agent_at(cache, sources)
    monkeypatch.setattr(_zipapp, "build", lambda *dummy: b"built again")
    assert agent_at(cache, sources) == path
    assert agent_at(cache, small(tmp_path / "sources", "A = 2\n")).read_bytes() == b"built again"


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_one_is_built_again(tmp_path: Path, damage: str) -> None:
    cache, sources = tmp_path / "cache", small(tmp_path / "sources", "A = 1\n")
    path = agent_at(cache, sources)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-1])
    else:
        path.unlink()
    assert agent_at(cache, sources).read_bytes() == data


def test_every_subcommand_of_this_tree_is_inside() -> None:
    found = modules(Sources())
    there = [module for module, dummy in agent.SUBCOMMANDS.values() if Sources().exists(module)]
    assert set(there) <= set(found)
    assert "agent.suite" in there


def test_every_file_inside_is_read_by_the_oldest_python(data: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(store(data, tmp_path)) as archive:
        for name in archive.namelist():
            ast.parse(archive.read(name), name, feature_version=(3, 8))


def test_it_runs_alone(agent_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "agent.json"
    config.write_text(json.dumps({"schema": 1, "node": "n1", "spool": str(tmp_path / "spool")}))
    done = run(agent_file, "suite", "prolog", "--json", "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert {json.loads(line)["node"] for line in done.stdout.splitlines()} == {"n1"}


@pytest.fixture
def installed(data: bytes, tmp_path: Path) -> Path:
    """Return the agent as a node has it, in directories of the test's own."""
    if os.geteuid():
        pytest.skip("only root unpacks it")
    path = tmp_path / "lib/hpcai-agent.pyz"
    path.parent.mkdir()
    with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(path, "w") as made:
        for name in given.namelist():
            text = given.read(name).decode()
            if name == "__main__.py":
                assert repr(INSTALLED) in text
                assert repr(UNPACKED) in text
                text = text.replace(repr(INSTALLED), repr(str(path.parent)))
                text = text.replace(repr(UNPACKED), repr(str(tmp_path / "run/program")))
            made.writestr(name, text)
    return path


def unpacked(installed: Path) -> Path:
    (place,) = (installed.parents[1] / "run/program").iterdir()
    return place


def marked(installed: Path) -> Path:
    """Have the agent unpack itself, and change what it says where it was unpacked; return that directory."""
    assert run(installed, "--help").stdout.startswith("usage: hpcai-agent")
    place = unpacked(installed)
    (file,) = place.rglob("agent/main.py")
    file.write_text(file.read_text().replace("usage: hpcai-agent", "usage: unpacked"))
    return place


def test_on_a_node_it_goes_on_from_files_of_which_python_keeps_bytecode(installed: Path) -> None:
    place = marked(installed)
    assert run(installed, "--help").stdout.startswith("usage: unpacked")
    assert [path.parent.name for path in place.rglob("main.*.pyc")] == ["__pycache__"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o755
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_another_agent_in_its_place_is_unpacked_anew(installed: Path) -> None:
    old = marked(installed)
    os.utime(installed, ns=(1, 1))
    os.utime(old, (1, 1))
    assert run(installed, "--help").stdout.startswith("usage: hpcai-agent")
    assert unpacked(installed) != old, "nobody needs the old one, which is there no more"


def test_what_started_a_moment_ago_keeps_its_files_whatever_their_age(installed: Path) -> None:
    old = marked(installed)
    os.utime(old, (1, 1))
    assert run(installed, "--help").stdout.startswith("usage: unpacked")
    os.utime(installed, ns=(1, 1))
    assert run(installed, "--help").stdout.startswith("usage: hpcai-agent")
    assert old.is_dir() and len([*old.parent.iterdir()]) == 2


@pytest.mark.parametrize("above", [0, 1, 2])
def test_files_that_somebody_else_could_have_made_are_not_read(installed: Path, above: int) -> None:
    place = marked(installed)
    directory = [place, *place.parents][above]
    os.chown(directory, 65534, 65534)
    assert run(installed, "--help").stdout.startswith("usage: hpcai-agent")
    os.chown(directory, 0, 0)
    directory.chmod(0o1777)
    assert run(installed, "--help").stdout.startswith("usage: hpcai-agent")
    directory.chmod(0o755)
    assert run(installed, "--help").stdout.startswith("usage: unpacked")
    place.rename(place.with_name("theirs"))
    place.symlink_to("theirs")
    assert run(installed, "--help").stdout.startswith("usage: hpcai-agent")


def test_where_it_cannot_be_unpacked_it_runs_as_it_is(installed: Path) -> None:
    (installed.parents[1] / "run").write_text("no directory")
    done = run(installed, "--help")
    assert (done.stderr, done.stdout[:18]) == ("", "usage: hpcai-agent")


def test_a_copy_that_is_not_a_node_s_own_unpacks_nothing(agent_file: Path) -> None:
    before = {path.name for path in agent_file.parent.iterdir()}
    there = Path(UNPACKED).exists()
    assert run(agent_file, "--help").returncode == 0
    assert ({path.name for path in agent_file.parent.iterdir()}, Path(UNPACKED).exists()) == (before, there)


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["suit"], 2), (["--help"], 0), (["suite", "x"], 2)])
def test_mistakes_in_the_arguments(agent_file: Path, arguments: list[str], status: int) -> None:
    done = run(agent_file, *arguments)
    assert done.returncode == status
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["( {words}; echo $? >{rc} ) | true", "{words} <&- >&- 2>&-; echo $? >{rc}"])
def test_no_reader_does_not_change_the_status(agent_file: Path, tmp_path: Path, line: str) -> None:
    config = tmp_path / "agent.json"
    config.write_text(json.dumps({"schema": 1, "node": "n1", "spool": str(tmp_path / "spool")}))
    words = f"{sys.executable} -IS {agent_file} suite prolog --json --check gpu_devices --config {config}"
    subprocess.run(["bash", "-c", line.format(words=words, rc=tmp_path / "rc")], check=True, timeout=patience(60))
    assert (tmp_path / "rc").read_text() == "0\n"
    state = json.loads((tmp_path / "spool/state.json").read_text())
    assert [one["verdict"] for one in state["suites"]["prolog"]["records"]] in (["unjudged"], ["error"])
    assert all(one["check"] == "gpu_devices" for one in state["suites"]["prolog"]["records"])


def test_make_agent_writes_the_same(data: bytes, tmp_path: Path) -> None:
    assert main([str(tmp_path / "hpcai-agent.pyz")]) == 0
    assert (tmp_path / "hpcai-agent.pyz").read_bytes() == data


def test_an_import_that_a_node_does_not_have_is_refused_here(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/main.py").write_text("import yaml\n")
    with pytest.raises(ProgramError, match="yaml"):
        build(Sources(tmp_path))


def test_what_old_sources_made_is_removed_but_for_the_newest(tmp_path: Path) -> None:
    for day in range(8):
        for name in (f"{day}.pyz", f"sources-{day}"):
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (day * 86400, day * 86400))
    _zipapp.clean(tmp_path, 4.5 * 86400)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *[f"{day}.pyz" for day in range(4, 8)],
        *[f"sources-{day}" for day in range(4, 8)],
    ]
    _zipapp.clean(tmp_path, 8 * 86400)
    assert len(list(tmp_path.iterdir())) == 8


def test_a_python_that_is_too_old_is_told_so_and_is_no_verdict_about_the_node() -> None:
    ast.parse(_zipapp.MAIN, feature_version=(3, 4))  # it has to be read first
    code = f"import sys; sys.version_info = (3, 6, 8); exec({_zipapp.MAIN!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=patience(60)
    )
    assert done.returncode == 2 and "hpcai-agent needs Python 3.8 or newer, and " in done.stderr, done.stderr
