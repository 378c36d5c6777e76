# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release of Slurm's commands is installed, before there is a slurm.conf. Private."""

from __future__ import annotations

import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.parse import version
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

LEAST = "ClusterName=nobody\nSlurmctldHost=nobody\n"


def release(module: t.Any) -> str:
    """Return it; empty without Slurm's commands. ``module`` is an AnsibleModule."""
    sinfo = module.get_bin_path("sinfo")
    if not sinfo:
        return ""
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
        conf = Path(folder, "slurm.conf")
        conf.write_text(LEAST, encoding="utf-8")
        rc, out, err = module.run_command([sinfo, "--version"], environ_update={"SLURM_CONF": str(conf)})
    try:
        return version(out)
    except SlurmError as exc:
        raise SlurmError(f"{sinfo} --version ended with {rc}, and {exc}: {err.strip()}") from exc
