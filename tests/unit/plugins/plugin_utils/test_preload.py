# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is loaded before the first worker is forked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.plugins import loader

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _preload

ROOT = Path(__file__).resolve().parents[4]
LOOKUPS = ROOT / "plugins/lookup"
COLLECTIONS = ROOT / ".build/collections"


@pytest.mark.parametrize("kind", _preload.PLUGINS)
def test_every_plugin_exists(kind: str) -> None:
    for name in _preload.PLUGINS[kind]:
        own = name.rpartition("hpcai.gpu_cluster.")[2]
        assert (LOOKUPS / f"{own}.py").is_file() if own != name else getattr(loader, kind).get(name, class_only=True)


LEFT_OUT = """
from ansible.plugins import loader
from ansible._internal._templating import _jinja_bits as bits

loader.init_plugin_loader()
loader.shell_loader = loader.filter_loader = None
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _preload
plain = bits.AnsibleEnvironment.compile
_preload.preload()
assert bits.AnsibleEnvironment.compile is not plain
"""
PACK = """
import gc, io, sys, zipfile
from datetime import datetime, timezone
from pathlib import Path
import ansible
from ansible.executor import module_common as packer
from ansible.plugins import loader

def packed(path, name):
    none = packer._builder.ExtensionManager.create(task_vars={})
    with zipfile.ZipFile(io.BytesIO(), "w") as archive:
        source = packer.Origin(path=str(path)).tag(path.read_bytes())
        known = packer.recursive_finder(name, name, source, archive, datetime.now(timezone.utc), none)
        return known, {file.filename: file.CRC for file in archive.infolist()}

def parse(name, source):
    parsed.append(name)
    return plain(name, source)

loader.init_plugin_loader()
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _preload
modules = [(Path(ansible.__file__).parent / "modules/command.py", "ansible.modules.command")]
for path in sorted(Path(sys.argv[1]).glob("slurm_*.py")):
    modules.append((path, f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{path.stem}"))
before = [packed(*module) for module in modules]
plain, parsed, packer._compile_module_ast = packer._compile_module_ast, [], parse
_preload.preload()
once = set(parsed)
parsed.clear()
assert [packed(*module) for module in modules] == before
assert "ansible.module_utils.basic" in once and len(modules) > 5
assert parsed and once.isdisjoint(parsed), once & set(parsed)
assert not [name for name in parsed if name.startswith("ansible_collections.hpcai")], parsed
lookup = sys.modules[loader.lookup_loader.get("template", class_only=True).__module__]
variables = {"of_a_host": ["and", "all", "that", "is", "in", "them"]}
copied = lookup.deepcopy(variables)
assert copied == variables and copied is not variables and copied["of_a_host"] is variables["of_a_host"]
assert gc.get_freeze_count()
"""


def in_a_process_of_its_own(program: str, cache: Path, *args: str) -> None:
    """Run it where what it puts in the place of Ansible's own is in no other test's way, nor in the user's cache."""
    collections = {"PYTHONPATH": str(COLLECTIONS), "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)}
    environment = {**os.environ, **collections, "XDG_CACHE_HOME": str(cache)}
    argv = [sys.executable, "-c", program, *args]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_not_there_is_left_out_and_the_rest_is_loaded(tmp_path: Path) -> None:
    in_a_process_of_its_own(LEFT_OUT, tmp_path)


def test_workers_pack_the_same_files_parse_none_of_ours_and_copy_no_variables(tmp_path: Path) -> None:
    in_a_process_of_its_own(PACK, tmp_path, str(COLLECTIONS / "ansible_collections/hpcai/gpu_cluster/plugins/modules"))
