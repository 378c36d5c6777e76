# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role's defaults and argument specification say the same thing."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

import pytest
import role_needs
import yaml
from role_readmes import ROLES, ROOT, handed, left_to_modules

# Inputs that are meant to have another default than the option that they are for: a role knows the whole node.
OTHERWISE = {
    "boot_order_verify",
    "certification_keep",
    "cyclecloud_cluster_wait",
    "elastic_nodes_minutes",
    "enroot_hooks",
    "enroot_mounts",
    "enroot_repository_packages",
    "gpu_test_tools_packages",
    "munge_key_file",
    "node_bundle_timeout",
    "node_image_packages",
    "node_tuning_keep_ipc",
    "node_tuning_limits",
    "node_tuning_nfs_readahead_kb",
    "node_tuning_strict",
    "node_tuning_sunrpc_slots",
    "nvme_scratch_wait",
    "pytorch_proof",
    "pytorch_python",
    "pyxis_build_packages",
    "report_formats",
    "run_results_dir",
    "training_job_timeout",
}
# A task of Ansible's own is handed it as well.
READ_BY_OTHERS = {"enroot_build_dir", "gpu_test_tools_build_dir"}
# Role slurm tells Slurm of the same directories, by the same defaults.
READ_BY_SLURM = {"job_hooks_prolog_dir", "job_hooks_epilog_dir"}
LINK = re.compile(r"\bO\((?![\w.]+#)([^)=]+)")  # to an option of the same entry point


def load(path: Path) -> dict[str, t.Any]:
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Path:
    return request.param


def options(role: Path) -> dict[str, t.Any]:
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    return {name: option for spec in specs.values() for name, option in (spec.get("options") or {}).items()}


def test_every_input_has_an_entry_in_the_defaults(role: Path) -> None:
    inputs = set(options(role)) - set(left_to_modules(role))
    assert set(load(role / "defaults/main.yml")) == inputs | set(role_needs.cluster_names(role))


def test_an_input_that_is_not_given_says_what_it_is_for(role: Path) -> None:
    path = role / "defaults/main.yml"
    text = path.read_text() if path.exists() else ""
    assert text == role_needs.render(role), "make docs draws it"
    needed = [name for options in role_needs.required(role) for name in options] + list(role_needs.cluster_names(role))
    for name in needed:
        value = load(path)[name]
        assert value.startswith('{{ undef(hint="Role ') and name in value, name


# Ansible evaluates the whole specification, also the defaults of inputs that were given.
def test_documented_defaults_stand_on_nothing_that_has_to_be_given(role: Path) -> None:
    needed = {name for options in role_needs.required(role) for name in options} | set(role_needs.CLUSTER)
    for name, option in options(role).items():
        expressions = re.findall(r"{{.*?}}", str(option.get("default", "")))
        used = {word for text in expressions for word in re.findall(r"\b\w+\b(?! *\| *default)", text)}
        assert not used & needed, name


def test_documented_defaults_are_the_real_ones(role: Path) -> None:
    defaults = load(role / "defaults/main.yml")
    for name, option in options(role).items():
        if "default" in option:
            assert option["default"] == defaults[name], name


def test_inputs_carry_the_role_s_name_and_are_described(role: Path) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"{role.name}_"), name
        assert option.get("description"), name
        assert option.get("type"), name


def described(spec: t.Any) -> t.Iterator[str]:
    """All texts of an entry point and of its options."""
    for name, value in spec.items() if isinstance(spec, dict) else ():
        if name in ("description", "short_description") and not isinstance(value, dict):
            yield from [value] if isinstance(value, str) else value
        else:
            yield from described(value)


def names(options: dict[str, t.Any] | None, parent: str = "") -> t.Iterator[str]:
    for name, option in (options or {}).items():
        yield parent + name
        yield from names(option.get("options"), f"{parent}{name}.")


def test_entry_points_are_described_and_name_their_own_options(role: Path) -> None:
    """Else the reference has no page of the role, or a link to nothing. Another entry point's input is C()."""
    for entry, spec in load(role / "meta/argument_specs.yml")["argument_specs"].items():
        assert spec.get("description"), entry
        links = {link for text in described(spec) for link in LINK.findall(text)}
        assert {link.replace("[]", "") for link in links} <= set(names(spec.get("options"))), entry


def test_role_has_a_page_and_metadata(role: Path) -> None:
    assert (role / "README.md").read_text().startswith("# ")
    assert load(role / "meta/main.yml")["galaxy_info"]["license"] == "GPL-3.0-or-later"


def test_values_of_a_role_are_no_programs(role: Path) -> None:
    """The lab's roles, which no user runs, have no filters of their own."""
    for path in [] if "lab" in role.parts else [*role.glob("defaults/*.yml"), *role.glob("vars/*.yml")]:
        assert "{%" not in path.read_text(), f"{path.relative_to(role.parent)}: a filter decides, and has a test"


def is_read(name: str) -> bool:
    """Say whether more than modules' options need the value: an expression of a role or of a playbook."""
    word, handed_on = re.compile(rf"\b{name}\b"), re.compile(rf'\w+: "{{{{ {name}( \| [\w() ]+)? }}}}"')
    for path, text in expressions().items():
        for line in text.splitlines() if name in text else ():
            bare = line.strip().removeprefix("- ")
            # Whether the inventory has it is no value.
            bare = bare.replace(f"{name} is defined", "")
            is_handed = (path.parent.name == "tasks" or "omit" in bare) and handed_on.fullmatch(bare)
            if word.search(bare) and not (bare.startswith(("#", f"{name}:")) or is_handed):
                return True
    return name in READ_BY_OTHERS


@functools.lru_cache(maxsize=None)
def expressions() -> dict[Path, str]:
    """The texts of all files of roles and playbooks that Ansible evaluates."""
    folders = (
        "roles/*/tasks",
        "roles/*/vars",
        "roles/*/defaults",
        "roles/*/templates",
        "roles/*/handlers",
        "playbooks",
    )
    files = (path for folder in folders for path in ROOT.glob(f"{folder}/**/*") if path.is_file())
    return {path: path.read_text() for path in files}


def test_no_default_of_a_role_repeats_its_module_s(role: Path) -> None:
    """It is left to the module, but where the role reads the value itself; then it is the same."""
    own = load(role / "defaults/main.yml")
    for name, option, is_left in handed(role):
        if is_left:
            assert name not in own, f"{name}: the module's default would never hold"
            if name in READ_BY_SLURM:
                assert f"{name} | default('{option['default']}')" in (ROOT / "roles/slurm/vars/main.yml").read_text()
            else:
                assert not is_read(name), f"{name}: whoever else reads it finds nothing"
        elif name in own and "default" in option and "{{" not in str(own[name]):
            assert (own[name] == option["default"]) is (name not in OTHERWISE), name
            assert name in OTHERWISE or is_read(name), f"{name}: default(omit) leaves it to the module"


def choices(option: t.Any, path: str = "") -> t.Iterator[tuple[str, t.Any]]:
    """The choices of an option and of all options below it, and the defaults of these."""
    yield f"{path}: choices", option.get("choices")
    for name, inner in (option.get("options") or {}).items():
        yield f"{path}.{name}: default", inner.get("default")
        yield from choices(inner, f"{path}.{name}")


def test_what_a_role_accepts_is_what_its_module_accepts(role: Path) -> None:
    own = options(role)
    for name, option, dummy in handed(role):
        accepted = dict(choices(own[name], name)) if name in own else {}
        for path, value in choices(option, name):
            if value is not None and path in accepted:
                assert accepted[path] == value, path
