# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program's files are those that it imports, and they run on a node that has nothing but Python."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.hpcai.gpu_cluster.plugins.lookup.node_program import LookupModule
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _node_program as program

# They only ever run under Ansible: they need Azure's SDKs, or its way to read options.
UNDER_ANSIBLE = ("azure.", "cyclecloud.")
FOUND = (path.relative_to(program.SOURCES) for path in program.SOURCES.rglob("*.py") if path.name != "__init__.py")
NAMES = (".".join(path.with_suffix("").parts) for path in FOUND)
EVERY = sorted(name for name in NAMES if not name.startswith(UNDER_ANSIBLE))
UTILS = program.HOME.replace(".", "/")


def options(library: Path, **more: t.Any) -> dict[str, t.Any]:
    found = {"library": str(library), "program": None, "function": "main", "arguments": [], "file": None}
    return {**found, "interpreter": sys.executable, **more}


def sources(root: Path, texts: t.Mapping[str, str]) -> program.Sources:
    for name, text in texts.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return program.Sources(root)


def install(files: t.Iterable[t.Mapping[str, str]]) -> None:
    for file in files:
        path = Path(file["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"])
        path.chmod(int(file["mode"], 8))


class ReadOnce(program.Sources):
    """Each file once for all that import it: two hundred of them need the same ones."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, list[str]] = {}

    def imports(self, module: str) -> list[str]:
        if module not in self.known:
            self.known[module] = super().imports(module)
        return self.known[module]


@pytest.fixture(scope="module")
def all_sources() -> ReadOnce:
    return ReadOnce()


@pytest.mark.parametrize("name", EVERY)
def test_every_file_can_go_to_a_node(name: str, all_sources: ReadOnce) -> None:
    """module_utils import nothing but the standard library and each other."""
    assert name in program.closure(name, all_sources)


@pytest.mark.parametrize("name", ["gpu.clocks_boot", "hpl.run", "infiniband.bandwidth", "parsers.mdadm"])
def test_the_files_are_those_that_are_loaded(name: str, tmp_path: Path) -> None:
    """With nothing else on the path the module loads, and loads all of them."""
    files = program.files(name, options(tmp_path / "library"))
    install(files)
    code = "import sys, importlib; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2])\n"
    code += "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'ansible_collections'))"
    command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "library"), f"{program.HOME}.{name}"]
    done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == [file["path"] for file in files]


def test_the_program_calls_its_function(tmp_path: Path) -> None:
    entry = f"from {program.HOME} import _b\n\ndef go(words):\n    print(*words, _b.NAME)\n    return 3\n"
    other = "import os\nNAME = os.environ.get('PYTHONPATH', '')\n"
    given = sources(tmp_path / "given", {"entry": entry, "_b": other})
    script = tmp_path / "sbin" / "go"
    wanted = options(tmp_path / "my library", program=str(script), function="go", arguments=["it's", "x\\n", 4])
    install(program.files("entry", wanted, given))
    environment = {"PYTHONPATH": str(tmp_path / "given")}
    done = subprocess.run([str(script), "boot"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == f"boot it's x\\n 4 {tmp_path / 'given'}\n"
    assert all(tmp_path / "my library" in file.parents for file in tmp_path.rglob("*.pyc")), "what no role would remove"


def test_order_and_modes(tmp_path: Path) -> None:
    wanted = options(Path("/l/"), program="/sbin/p")
    files = program.files("gpu.clocks_boot", wanted)
    assert files == program.files("gpu.clocks_boot", wanted)
    paths = [file["path"] for file in files]
    assert paths == [*sorted(paths[:-1]), "/sbin/p"], "what needs the others is written last"
    assert [file["mode"] for file in files] == ["0644"] * (len(files) - 1) + ["0755"]
    assert paths[0] == "/l/ansible_collections/__init__.py"


@pytest.mark.parametrize(
    "text, found",
    [
        ("import os, sys, json.decoder", []),
        ("import {home}._a", ["", "_a"]),
        ("import {home}._a as x", ["", "_a"]),
        ("from {home} import _a, _b as x", ["", "_a", "_b"]),
        ("from {home}._a import b, c", ["", "_a"]),
        ("from {home}._a import *", ["", "_a"]),
        ("from . import _a", ["", "_a"]),
        ("from ._a import b", ["", "_a"]),
        ("from {home}.p import q", ["", "p", "p.q"]),
        ("from {home}.p import CONSTANT", ["", "p"]),
        ("import {home}.p", ["", "p"]),
        ("from {home}.bare.q import r", ["", "bare", "bare.q"]),
        ("from {home}.bare import q", ["", "bare", "bare.q"]),
        ("def f():\n    try:\n        from {home} import _a\n    except ImportError:\n        pass", ["", "_a"]),
        ("from {home} import circle", ["", "circle"]),
        ("if t.TYPE_CHECKING:\n    import yaml\nelse:\n    from {home} import _a", ["", "_a"]),
        ("from {home}.up.down import X", ["", "_a", "up", "up.down"]),
    ],
)
def test_what_is_an_import(text: str, found: list[str], tmp_path: Path) -> None:
    texts = {"_a": "", "_b": "", "p/__init__": "CONSTANT = 1", "p/q": "", "bare/q": "", "up/down": "from .. import _a"}
    texts.update(circle=f"from {program.HOME} import entry", entry=text.replace("{home}", program.HOME))
    given = sources(tmp_path, texts)
    assert program.closure("entry", given) == sorted({*found, "", "entry"})


@pytest.mark.parametrize(
    "text, said",
    [
        ("import yaml", "entry.py: it imports yaml, which a node without Ansible does not have"),
        ("from ansible.module_utils.basic import AnsibleModule", "imports ansible.module_utils.basic, which a node"),
        ("from {home}._none import a", "imports _none, and .* has no such file"),
        ("from {home} import _a, _none", "imports _none, and"),
        ("import {home}._none", "imports _none, and"),
        ("from {home}.p import none", "imports p.none, and"),
        ("from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import x", "plugin_utils, which a node"),
        ("def f(:", "entry.py is no Python that can be read"),
    ],
)
def test_what_no_node_could_import(text: str, said: str, tmp_path: Path) -> None:
    given = sources(tmp_path, {"entry": text.replace("{home}", program.HOME), "_a": "", "p/q": ""})
    with pytest.raises(program.ProgramError, match=said):
        program.closure("entry", given)


@pytest.mark.parametrize("name", ["_none", "", "parsers", "../modules/gpu_info", "_command.py", "parsers/mdadm"])
def test_names_of_no_program(name: str) -> None:
    if name == "parsers":
        assert program.closure(name, program.Sources()) == ["", "parsers"]
        return
    with pytest.raises(program.ProgramError, match="is no module in"):
        program.closure(name, program.Sources())


def test_a_file_from_elsewhere_is_the_module_that_it_is_named_as(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    with pytest.raises(program.ProgramError, match=f"{own} has to be a file"):
        program.files("power.providers.mine", options(tmp_path / "lib", file=str(own)))
    own.write_text(f"from {program.HOME}.power import program\n")
    found = {
        file["path"]: file["content"] for file in program.files("power.providers.mine", options(Path("/l"), file=own))
    }
    assert found[f"/l/{UTILS}/power/providers/mine.py"] == own.read_text()
    assert f"/l/{UTILS}/power/program.py" in found and f"/l/{UTILS}/power/providers/__init__.py" in found
    own.write_text("import ansible\n")
    with pytest.raises(program.ProgramError, match=f"{own}: it imports ansible"):
        program.files("power.providers.mine", options(Path("/l"), file=own))


def test_a_function_is_a_name() -> None:
    with pytest.raises(program.ProgramError, match="not the name of a function"):
        program.launcher("_process", "/l", options(Path("/l"), function="a()"))


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> LookupModule:
    """The lookup with options that Ansible would have read from its documentation."""
    monkeypatch.setattr(LookupModule, "set_options", lambda *dummy, **more: None)
    monkeypatch.setattr(LookupModule, "get_option", lambda dummy, name: options(Path("/l"), program="/sbin/p")[name])
    return LookupModule()


def test_lookup_returns_the_files_of_one_program(lookup: LookupModule) -> None:
    (files,) = lookup.run(["gpu.clocks_boot"], None)
    assert {f"/l/{UTILS}/gpu/clocks_boot.py", "/sbin/p"} <= {file["path"] for file in files}


@pytest.mark.parametrize("terms", [[], ["_a", "_b"], ["_none"]])
def test_lookup_says_what_is_wrong(lookup: LookupModule, terms: list[str]) -> None:
    with pytest.raises(AnsibleLookupError, match="node_program"):
        lookup.run(terms, None)


def test_an_installed_collection_finds_its_files(tmp_path: Path) -> None:
    """From a path of its own, by a run of Ansible, through to what a template sees."""
    home = tmp_path / "ansible_collections/hpcai/gpu_cluster"
    home.mkdir(parents=True)
    (home / "plugins").symlink_to(program.SOURCES.parent)
    lookup = "lookup('hpcai.gpu_cluster.node_program', '_process', library='/l', program='/p')"
    words = [
        "localhost",
        "-m",
        "ansible.builtin.debug",
        "-a",
        f"msg={{{{ {lookup} | map(attribute='path') | join(' ') }}}}",
    ]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_NOCOLOR": "1"}
    command = [sys.executable, "-m", "ansible.cli.adhoc", *words]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"/l/{UTILS}/_process.py /p" in done.stdout, done.stdout + done.stderr
