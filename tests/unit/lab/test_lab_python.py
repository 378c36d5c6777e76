# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of the lab's nodes: a fork that a module cannot tell from a Python of its own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest

FILES = Path(__file__).parents[3] / "lab/roles/lab/files"
SERVE = """import pathlib, socket, sys, zipimport
sys.path.insert(0, {files!r})
sys.path.append({packages!r})
import lab_bytecode
import lab_python
lab_python.PYTHON = sys.executable
lab_bytecode.PLACE = {place!r}
lab_python.ARCHIVE = pathlib.Path({place!r}, "ansible.zip")
lab_python.NEW = pathlib.Path({place!r}, "new")
zipimport._compile_source = lab_bytecode.compile_once # as for root on a machine
while True: # as systemd does
    lab_python.Server(socket.socket(fileno=socket.dup({number}))).serve()
"""
WHOLE = """import json, locale, os, resource, signal, subprocess, sys, time
mask = os.umask(0)
environment = {name: value for name, value in os.environ.items() if name != "_"}
print(json.dumps([sys.argv, sys.path[0], os.getcwd(), mask, environment, __name__, os.getgroups(), sys.executable,
                  [resource.getrlimit(number) for number in range(16)], open("/proc/self/cgroup").read(), time.tzname,
                  locale.setlocale(locale.LC_CTYPE), sys.stdout.encoding, sys.stdout.errors,
                  sorted(os.listdir("/proc/self/fd")),
                  [str(signal.getsignal(number)) for number in range(1, 32)], str(signal.pthread_sigmask(0, [])),
                  subprocess.check_output(["echo", "a child"], text=True), subprocess.call(["false"])]))
"""


class Python(t.NamedTuple):
    """The program, and where its server finds packages."""

    program: Path
    packages: Path


@pytest.fixture
def python(tmp_path: Path) -> t.Iterator[Python]:
    """The program, with its server."""
    place, name, program, packages = (tmp_path / word for word in ("kept", "socket", "lab_python", "packages"))
    place.mkdir()
    packages.mkdir()
    text = (FILES / "lab_python").read_text().replace("/run/lab_python", str(name))
    program.write_text(text.replace("/usr/bin/python3", sys.executable))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(name))
        listening.listen()
        number = listening.fileno()
        code = SERVE.format(files=str(FILES), packages=str(packages), place=str(place), number=number)
        given = {**os.environ, "EXTRA": "of the server", "LANG": "C.UTF-8"}
        server = subprocess.Popen([sys.executable, "-B", "-c", code], pass_fds=[number], env=given, umask=0o7)
    yield Python(program, packages)
    server.terminate()
    server.wait()


def ran(program: str | Path, source: str = "", *arguments: str, **more: t.Any) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    given = {"env": clean, **more}
    done = subprocess.run(
        [str(program), *arguments], input=source, capture_output=True, text=True, check=False, **given
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "environment", [{}, {"LANG": "C"}, {"LANG": "C.UTF-8", "TZ": "America/Lima"}, {"LC_CTYPE": "nowhere"}]
)
def test_a_module_finds_what_it_would_find_in_a_python_of_its_own(
    python: Python, tmp_path: Path, environment: dict[str, str]
) -> None:
    given = {"cwd": tmp_path, "env": {"PATH": os.environ["PATH"], "ODD": "a=b\nc", **environment}, "umask": 0o27}
    for arguments in ([], [str(tmp_path / "AnsiballZ_ping.py"), "one"]):
        if arguments:
            Path(arguments[0]).write_text(WHOLE)
        answers = [
            ran(program, "" if arguments else WHOLE, *arguments, **given)
            for program in (python.program, sys.executable)
        ]
        forked, own = ([rc, *json.loads(out)] for rc, out, dummy in answers)
        assert forked[0] == 0
        assert dict(enumerate(forked)) == dict(enumerate(own))


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('text')",
        "import sys; sys.exit()",
        "import atexit; atexit.register(print, 'at its end')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
        "import sys; print('out'); sys.stderr.write('err')",
        "import os; os.kill(os.getpid(), 9)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; kept = os.fdopen(os.dup(1), 'w'); kept.write('never closed')",
        "class Late:\n    def __del__(self): print('gone')\nlate = Late()",
    ],
)
def test_it_ends_as_it_would(python: Python, source: str) -> None:
    # Without what .build/venv's Python leaves out at its end (tests/tools/lean.pth).
    assert ran(python.program, source) == ran(sys.executable, source, "-S", "-")


def test_who_kills_all_pythons_has_killed_the_module_and_lost_no_connection(python: Python) -> None:
    """255 would be one to Ansible, which makes it anew and begins the module a second time."""
    rc, out, err = ran(python.program, "import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)")
    assert (rc, out) == (-9, "")
    assert "the service ended before the module did" in err


@pytest.fixture
def cgroups() -> t.Iterator[list[Path]]:
    """Cgroups of the test's own: one, or with version 1 one of each tree that needs no settings first."""
    tree = Path("/sys/fs/cgroup")
    trees = [tree] if (tree / "cgroup.procs").exists() else [path.parent for path in tree.glob("*/cgroup.procs")]
    made = [place / f"hpcai-{os.getpid()}" for place in trees if place.name != "cpuset" and not place.is_symlink()]
    try:
        for place in made:
            place.mkdir()
    except OSError as exc:
        pytest.skip(f"no cgroups can be made here: {exc}")
    else:
        yield made
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def test_a_module_is_in_the_cgroups_of_its_caller(python: Python, cgroups: list[Path]) -> None:
    source = "print(open('/proc/self/cgroup').read())"
    join = "".join(f"echo $$ > {place}/cgroup.procs; " for place in cgroups)
    forked, own = (ran("sh", source, "-ec", f"{join} exec {program}") for program in (python.program, sys.executable))
    assert forked == own
    assert f"hpcai-{os.getpid()}" in own[1]


def test_what_breaks_it_is_told_and_nothing_of_it_stays(python: Python) -> None:
    rc, out, err = ran(python.program, "import json; json.mine = 1; 1 / 0")
    assert (rc, out) == (1, "") and "ZeroDivisionError" in err
    assert ran(python.program, "import json; print(hasattr(json, 'mine'))")[1] == "False\n"


def test_what_was_installed_is_found(python: Python) -> None:
    """At once by a new Python, which here does not look there, and then by a fork of another process."""
    source = "import importlib.util, sys; print(bool(importlib.util.find_spec('late')), 'lab_python' in sys.modules)"
    assert ran(python.program, source) == (0, "False True\n", "")
    (python.packages / "late.py").touch()
    assert ran(python.program, source) == (0, "False False\n", "")
    assert ran(python.program, source) == (0, "True True\n", "")


def test_what_is_no_module_is_python_itself(python: Python) -> None:
    for arguments, environment in ((["-c", "import sys; print(sys.argv)"], {}), ([], {"PYTHONHASHSEED": "7"})):
        source = "import sys; print(sys.flags.hash_randomization)"
        given = {"env": {"PATH": os.environ["PATH"], **environment}}
        assert ran(python.program, source, *arguments, **given) == ran(sys.executable, source, *arguments, **given)


def test_without_the_server_it_is_python_itself_and_root_is_told(python: Python, tmp_path: Path) -> None:
    (tmp_path / "socket").unlink()
    rc, out, err = ran(python.program, "print('here')")
    assert (rc, out) == (0, "here\n")
    assert ("so a new one" in err) is (os.geteuid() == 0)


def test_each_module_runs_the_code_that_came_with_it(python: Python, tmp_path: Path) -> None:
    """Bytecode that is kept is used for the same content only."""
    for word in ("one", "one", "two", "two", "one"):
        with zipfile.ZipFile(tmp_path / "sent.zip", "w") as archive:
            archive.writestr("said.py", f"word = {word!r}")
        source = f"import sys; sys.path.insert(0, {str(tmp_path / 'sent.zip')!r}); import said; print(said.word)"
        assert ran(python.program, source) == (0, f"{word}\n", "")
    assert len(list((tmp_path / "kept").iterdir())) == 2


PACKAGE = "from pkgutil import extend_path\n__path__=extend_path(__path__,__name__)\n"  # as Ansible's are
ANSIBLE = {
    "ansible/__init__.py": PACKAGE,
    "ansible/module_utils/__init__.py": PACKAGE,
    "ansible/module_utils/basic.py": (
        "import os\nfrom ansible.module_utils import common\nborn, given = os.getpid(), []\n"
    ),
    "ansible/module_utils/common/__init__.py": "",
    "ansible/modules/__init__.py": "",
}
SAID = """import os, sys
sys.path.insert(0, {archive!r})
from ansible.module_utils import basic
import ansible.{more} as more
print(basic.born == os.getpid(), basic.given, more.word, basic is sys.modules["ansible.module_utils.basic"])
basic.given.append("of another module")
"""


@pytest.fixture
def sent(python: Python, tmp_path: Path) -> t.Callable[..., list[str]]:
    """Run a module that brings these files of Ansible's; tell what it found."""

    def run(more: str, word: str, **changed: str) -> list[str]:
        archive = tmp_path / f"sent-{more.replace('.', '-')}.zip"
        changed = {f"ansible/module_utils/{name}.py": text for name, text in changed.items()}
        files = {**ANSIBLE, f"ansible/{more.replace('.', '/')}.py": f"word = {word!r}", **changed}
        with zipfile.ZipFile(archive, "w") as opened:
            for name, text in files.items():
                opened.writestr(name, text)
        rc, out, err = ran(python.program, SAID.format(archive=str(archive), more=more))
        assert (rc, err) == (0, "")
        return out.split()

    return run


def test_what_all_modules_import_of_ansible_is_imported_once(sent: t.Callable[..., list[str]]) -> None:
    """The first imports it itself. Nothing that one did to it is there in the next, which has files of its own, too."""
    assert sent("modules.one", "1") == ["True", "[]", "1", "True"]
    assert sent("module_utils.common.two", "2") == ["False", "[]", "2", "True"]
    assert sent("module_utils.common.three", "3") == ["False", "[]", "3", "True"]
    assert sent("modules.four", "4") == ["False", "[]", "4", "True"]


@pytest.mark.parametrize("name", ["basic", "common/__init__"])
def test_who_is_sent_another_ansible_has_that_one(sent: t.Callable[..., list[str]], name: str) -> None:
    other = {name: ANSIBLE[f"ansible/module_utils/{name}.py"] + "# of another release\n"}
    assert [sent("modules.one", "1")[0] for dummy in range(2)] == ["True", "False"]
    assert [sent("modules.one", "1", **other)[0] for dummy in range(2)] == ["True", "False"]
    assert [sent("modules.one", "1")[0] for dummy in range(2)] == ["True", "False"]


def test_what_cannot_be_imported_breaks_the_module_alone(sent: t.Callable[..., list[str]], python: Python) -> None:
    with pytest.raises(AssertionError, match="by zero"):
        sent("modules.one", "1", basic="1 / 0")
    assert ran(python.program, "print('well')") == (0, "well\n", "")
    assert [sent("modules.one", "1")[0] for dummy in range(2)] == ["True", "False"]


PLACE = "ansible_collections/mine/tools/plugins/module_utils"
FROM = f"from {PLACE.replace('/', '.')} import"
COLLECTION = {
    **{f"{'/'.join(PLACE.split('/')[: depth + 1])}/__init__.py": "" for depth in range(5)},
    f"{PLACE}/outer.py": f"import os\n{FROM} inner\nborn = os.getpid()\n",
    f"{PLACE}/inner.py": (
        "import os\nfrom ansible.module_utils import basic\nborn, word, given = os.getpid(), 'old', []\n"
    ),
}
USES = """import os, sys
sys.path.insert(0, {archive!r})
from ansible.module_utils import basic
from ansible_collections.mine.tools.plugins.module_utils import {names}
inner = sys.modules["ansible_collections.mine.tools.plugins.module_utils.inner"]
assert inner.basic is basic
print(*(sys.modules[f"ansible_collections.mine.tools.plugins.module_utils.{{name}}"].born == os.getpid()
        for name in "{names}".split(", ")), inner.word, inner.given)
inner.given.append("of another module")
"""
OF_COLLECTIONS = "import sys; sys.path.insert(0, {archive!r}); import ansible.module_utils.basic\n"
OF_COLLECTIONS += "print([name for name in sys.modules if 'ansible_collections' in name])"


@pytest.fixture
def brought(python: Python, tmp_path: Path) -> t.Callable[..., str]:
    """Run a module that brings these files of a collection, or none; tell what it found."""

    def run(names: str = "", **changed: str) -> str:
        archive = tmp_path / "sent.zip"
        with zipfile.ZipFile(archive, "w") as opened:
            changed = {f"{PLACE}/{name}.py": text for name, text in changed.items()}
            for name, text in {**ANSIBLE, **(COLLECTION if names else {}), **changed}.items():
                opened.writestr(name, text)
        source = USES if names else OF_COLLECTIONS
        rc, out, err = ran(python.program, source.format(archive=str(archive), names=names))
        assert (rc, err) == (0, "")
        return out.strip()

    return run


def test_what_modules_import_of_a_collection_is_imported_once(brought: t.Callable[..., str], tmp_path: Path) -> None:
    """The first is there before Ansible is, and the second imports what the others have imported."""
    assert [brought("outer, inner") for dummy in range(4)] == ["True True old []"] * 2 + ["False False old []"] * 2
    assert brought() == "[]", "it was not sent"
    more = {"more": f"import os\n{FROM} inner\nborn = os.getpid()"}
    assert brought("more, inner", **more) == "True False old []"
    assert brought("outer, more", **more) == "False False old []"
    assert list((tmp_path / "kept/new").iterdir()) == []


def test_who_is_sent_another_release_of_a_collection_has_all_of_that_one(brought: t.Callable[..., str]) -> None:
    """Also who imports a file that is the same as before: it would have the other release's below it."""
    other = {"inner": COLLECTION[f"{PLACE}/inner.py"].replace("old", "new")}
    assert [brought("outer, inner") for dummy in range(3)][-1] == "False False old []"
    assert [brought("outer, inner", **other) for dummy in range(2)] == ["True True new []", "False False new []"]
    assert [brought("outer, inner") for dummy in range(2)] == ["True True old []", "False False old []"]


def test_what_a_collection_is_not_sent_to_import_breaks_the_module_alone(
    brought: t.Callable[..., str], python: Python
) -> None:
    for dummy in range(3):
        with pytest.raises(AssertionError, match="by zero"):
            brought("outer, inner", inner="1 / 0")
    assert ran(python.program, "print('well')") == (0, "well\n", "")
    assert [brought("outer, inner") for dummy in range(2)][-1] == "False False old []"
