# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of this collection's roles and playbooks, compiled once and kept from run to run. Private.

Each worker of Ansible compiles all templates that its task comes to: a quarter of a run's processor time on the
control host. Here the main process has them before it forks, and a worker that compiles a new one leaves it in a file
for those that come after it.

What stands in files of others is compiled as ever and never kept: a variable of a site may be a secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import marshal
import os
import re
import stat
import typing as t
from pathlib import Path
from types import CodeType

import jinja2
from ansible.release import __version__ as core
from jinja2.environment import TemplateExpression

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import put

# Where roles and playbooks are, in a collection that is installed and in a clone. Variables beside them are a site's.
PLACES = tuple(
    f"{root}/{folder}/"
    for root in dict.fromkeys(str(path.parents[2]) for path in (Path(__file__), Path(__file__).resolve()))
    for folder in ("roles", "playbooks")
)
_OF_A_SITE = re.compile(r"/(group|host)_vars/")
_DIGEST = hashlib.sha256(b"").digest_size
MOST = 4000  # files; a collection has some hundred templates, and one that is worked on has new ones each day


def ours(path: str | None) -> bool:
    """Whether a file is one of this collection's roles and playbooks."""
    return bool(path) and str(path).startswith(PLACES) and not _OF_A_SITE.search(str(path))


class Store:
    """Compiled templates by their keys: in memory, and in files that nobody but this user and root can have put there.

    Raises TrustError for a directory into which others can put something, or OSError.
    """

    def __init__(self, folder: Path) -> None:
        versions = (core, jinja2.__version__, importlib.util.MAGIC_NUMBER)
        self.folder = folder / hashlib.sha256(repr(versions).encode()).hexdigest()[:16]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.trusted = _trusted.trusted_users()
        _trusted.check(str(self.folder), self.trusted)
        names = [path.name for path in self.folder.iterdir()]
        if len(names) > MOST:
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
        self.known = {name: code for name in names for code in [self._read(name)] if code}

    def _read(self, key: str) -> CodeType | None:
        """Return what is in a file; one that is not whole, or that others can write, counts as none."""
        with contextlib.suppress(OSError, EOFError, TypeError, ValueError):
            with (self.folder / key).open("rb") as file:
                made, content = os.fstat(file.fileno()), file.read()
            is_own = stat.S_ISREG(made.st_mode) and not _trusted.foreign(made, self.trusted)
            if is_own and hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                code: CodeType = marshal.loads(content[_DIGEST:])  # noqa: S302 # what this user compiled
                return code
        return None

    def get(self, key: str) -> CodeType | None:
        """Return what this process, an earlier run or another worker has compiled."""
        code = self.known.get(key) or self._read(key)
        if code:
            self.known[key] = code
        return code

    def add(self, key: str, code: CodeType) -> CodeType:
        """Keep it; a directory that is full or gone keeps nothing."""
        self.known[key] = code
        content = marshal.dumps(code)
        with contextlib.suppress(OSError):
            put(hashlib.sha256(content).digest() + content, self.folder / key)
        return code


class Compiler:
    """Takes the place of what compiles templates and expressions in Ansible's environment of Jinja."""

    def __init__(self, bits: t.Any, tags: t.Any, store: Store) -> None:
        self.bits, self.tags, self.store = bits, tags, store
        self.environment = bits.AnsibleEnvironment
        self.plain, self.plain_expression = self.environment.compile, self.environment.compile_expression
        self.wanted: str | None = None  # the key of an expression that is being compiled

    def key(self, environment: t.Any, kind: str, source: str) -> str | None:
        """Return a digest of all that decides what a template becomes, or None for one that is not ours."""
        origin, secret = self.tags.Origin.get_tag(source), self.tags.VaultedValue.is_tagged_on(source)
        if secret or not origin or not ours(origin.path) or environment._debuggable_template_source:
            return None
        context = self.bits._TemplateCompileContext.current(optional=True)
        syntax = [getattr(environment, name) for name in self.bits._TEMPLATE_OVERRIDE_FIELD_NAMES]
        settings = (bool(context and context.escape_backslashes), self.bits._TemplateConfig.allow_embedded_templates)
        decides = (kind, settings, syntax, sorted(environment.extensions), str(source))
        return hashlib.sha256(repr(decides).encode()).hexdigest()

    def compile(self, environment: t.Any, source: t.Any, *args: t.Any, **options: t.Any) -> t.Any:
        """Return the code of a template, or of an expression's that C(compile_expression) has parsed."""
        key = self.wanted
        if isinstance(source, str):
            key = None if args or options else self.key(environment, "template", source)
        self.wanted = None
        if not key:
            return self.plain(environment, source, *args, **options)
        return self.store.get(key) or self.store.add(key, self.plain(environment, source))

    def compile_expression(self, environment: t.Any, source: str, undefined_to_none: bool = True) -> TemplateExpression:
        """Return an expression, as jinja2.Environment.compile_expression makes it of its code."""
        key = self.key(environment, "expression", source)
        code = self.store.get(key) if key else None
        if code:
            template = environment.template_class.from_code(environment, code, environment.make_globals(None), None)
            return TemplateExpression(template, undefined_to_none)
        self.wanted = key
        try:
            expression: TemplateExpression = self.plain_expression(environment, source, undefined_to_none)
            return expression
        finally:
            self.wanted = None

    def install(self) -> None:
        """Have Ansible's environment call these."""

        def compiled(environment: t.Any, source: t.Any, *args: t.Any, **options: t.Any) -> t.Any:
            return self.compile(environment, source, *args, **options)

        def expression(environment: t.Any, source: str, undefined_to_none: bool = True) -> TemplateExpression:
            return self.compile_expression(environment, source, undefined_to_none)

        self.environment.compile, self.environment.compile_expression = compiled, expression


def keep(folder: Path) -> None:
    """Keep compiled templates below a directory, from now on; raises where this Ansible is made in another way."""
    bits: t.Any = importlib.import_module("ansible._internal._templating._jinja_bits")
    tags: t.Any = importlib.import_module("ansible._internal._datatag._tags")
    compiler = Compiler(bits, tags, Store(folder))
    probe = tags.Origin(path=f"{PLACES[0]}probe.yml").tag("{{ probe }}")
    if not compiler.key(bits.AnsibleEnvironment(), "template", probe):
        raise LookupError("a template of ours is not known as such")
    compiler.install()
