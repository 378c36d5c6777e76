# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compiled templates: whose are kept, who can have written them, and that they are what Jinja makes."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible._internal._datatag import _tags
from ansible._internal._datatag._tags import Origin, TrustedAsTemplate, VaultedValue
from ansible._internal._templating import _jinja_bits as bits

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _templates

ROOT = Path(__file__).resolve().parents[4]
ROLE = f"{_templates.PLACES[0]}munge/vars/main.yml"
TEXT = "{{ [munge_packages, 'a'] | flatten | join(', ') }}"


class Environment(bits.AnsibleEnvironment):
    """Ansible's, with methods of its own to take the place of."""

    compile = bits.AnsibleEnvironment.compile
    compile_expression = bits.AnsibleEnvironment.compile_expression
    parsed = 0

    def _parse(self, *args: t.Any, **options: t.Any) -> t.Any:
        type(self).parsed += 1
        return super()._parse(*args, **options)


class Bits:
    """What is looked for in Ansible's module, with that environment."""

    AnsibleEnvironment = Environment
    _TemplateCompileContext = bits._TemplateCompileContext
    _TemplateConfig = bits._TemplateConfig
    _TEMPLATE_OVERRIDE_FIELD_NAMES = bits._TEMPLATE_OVERRIDE_FIELD_NAMES


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bits.AnsibleEnvironment.compile.__module__ != _templates.__name__, "a test before this one left ours there"
    for name in ("compile", "compile_expression"):
        monkeypatch.setattr(Environment, name, getattr(bits.AnsibleEnvironment, name))
    monkeypatch.setattr(Environment, "parsed", 0)


def keep(folder: Path) -> _templates.Store:
    """As another run does, with what it finds in the directory."""
    for name in ("compile", "compile_expression"):
        setattr(Environment, name, getattr(bits.AnsibleEnvironment, name))
    store = _templates.Store(folder)
    _templates.Compiler(Bits, _tags, store).install()
    return store


def said(text: str, path: str = ROLE, **variables: t.Any) -> t.Any:
    source = TrustedAsTemplate().tag(Origin(path=path).tag(text))
    template = Environment().from_string(source)
    return template.render(variables) if variables else template


@pytest.mark.parametrize(
    ("path", "known"),
    [
        (f"{ROOT}/roles/munge/tasks/main.yml", True),
        (f"{ROOT}/playbooks/configure_steps/nodes.yml", True),
        (f"{ROOT}/playbooks/group_vars/all.yml", False),
        (f"{ROOT}/inventories/static/group_vars/all.yml", False),
        ("/srv/site/roles/munge/tasks/main.yml", False),
        (f"{ROOT}-copy/roles/munge/tasks/main.yml", False),
        ("", False),
        (None, False),
    ],
)
def test_only_what_stands_in_roles_and_playbooks_of_this_collection_is_ours(path: str | None, known: bool) -> None:
    assert _templates.ours(path) is known


def test_the_next_run_compiles_nothing_anew(tmp_path: Path) -> None:
    keep(tmp_path)
    said(TEXT)
    Environment().compile_expression(Origin(path=ROLE).tag("munge_packages | length > 0"), False)
    compiled = Environment.parsed
    assert compiled
    store = keep(tmp_path)
    assert len(store.known) == 2
    said(TEXT)
    Environment().compile_expression(Origin(path=ROLE).tag("munge_packages | length > 0"), False)
    Environment().from_string(Origin(path=ROLE).tag("{{ other }}"))
    assert Environment.parsed == compiled + 1


def test_what_a_worker_compiles_the_next_one_finds(tmp_path: Path) -> None:
    first, second = _templates.Store(tmp_path), _templates.Store(tmp_path)
    code = compile("1", "<template>", "eval")
    first.add("key", code)
    assert second.get("key") == code and second.get("other") is None


def test_nothing_of_a_site_is_kept(tmp_path: Path) -> None:
    store = keep(tmp_path)
    said("{{ 'a secret' }}", "/srv/site/group_vars/all.yml")
    Environment().from_string("{{ 'of nowhere' }}")
    Environment().from_string(VaultedValue(ciphertext="of a vault").tag(Origin(path=ROLE).tag("{{ 'a secret' }}")))
    assert store.known == {} and list(store.folder.iterdir()) == []


def test_escapes_and_syntax_make_another_template(tmp_path: Path) -> None:
    """The same text of a file of YAML and of a file of templates is not the same template."""
    store = keep(tmp_path)
    source = Origin(path=ROLE).tag(r"{{ 'a\nb' }}")
    with bits._TemplateCompileContext(escape_backslashes=True):
        escaped = Environment().from_string(source)
    plain_text = Environment().from_string(source)
    assert len(store.known) == 2
    assert escaped.root_render_func.__code__ != plain_text.root_render_func.__code__
    Environment().overlay(trim_blocks=False).from_string(source)
    assert len(store.known) == 3


def test_a_file_that_is_damaged_or_that_others_can_write_is_not_taken(tmp_path: Path) -> None:
    store = _templates.Store(tmp_path)
    code = compile("1", "<template>", "eval")
    for key in ("whole", "damaged", "cut", "open", "link"):
        store.add(key, code)
    files = {key: store.folder / key for key in store.known}
    content = files["damaged"].read_bytes()
    files["damaged"].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    files["cut"].write_bytes(content[:7])
    files["open"].chmod(0o666)
    files["link"].unlink()
    files["link"].mkdir()
    assert list(_templates.Store(tmp_path).known) == ["whole"]


def test_a_directory_into_which_others_can_put_something_is_not_used(tmp_path: Path) -> None:
    """Who may rename what is in it gives one template the code of another."""
    folder = _templates.Store(tmp_path / "templates").folder
    folder.chmod(0o777)
    with pytest.raises(_trusted.TrustError):
        _templates.Store(tmp_path / "templates")
    folder.chmod(0o700)
    folder.parent.chmod(0o777)
    with pytest.raises(_trusted.TrustError):
        _templates.Store(tmp_path / "templates")


def test_a_directory_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_templates, "MOST", 2)
    store = _templates.Store(tmp_path)
    for number in range(3):
        store.add(str(number), compile(str(number), "<template>", "eval"))
    assert _templates.Store(tmp_path).known == {} and list(store.folder.iterdir()) == []


def test_a_directory_that_is_gone_keeps_nothing_and_harms_nobody(tmp_path: Path) -> None:
    store = keep(tmp_path)
    store.folder.rmdir()
    said(TEXT)
    assert len(store.known) == 1 and not store.folder.exists()


def texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    # Here Ansible finds no filter of a collection, and Jinja looks for each as it compiles.
    elif isinstance(value, str) and "{{" in value and "hpcai.gpu_cluster." not in value:
        yield value


def test_what_is_kept_is_what_jinja_makes_of_every_template_of_our_roles(tmp_path: Path) -> None:
    environment = bits.AnsibleEnvironment()
    fresh = {}
    for path in sorted([*ROOT.glob("roles/*/vars/main.yml"), *ROOT.glob("roles/*/defaults/main.yml")]):
        for text in texts(yaml.safe_load(path.read_text())):
            fresh[text] = environment.compile(text)
    keep(tmp_path)
    for text in fresh:
        Environment().compile(Origin(path=ROLE).tag(text))
    keep(tmp_path)
    Environment.parsed = 0
    again = {text: Environment().compile(Origin(path=ROLE).tag(text)) for text in fresh}
    assert again == fresh and len(fresh) > 200 and Environment.parsed == 0
