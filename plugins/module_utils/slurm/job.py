# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to submit to Slurm, and the record that makes it happen once. No I/O; private to this collection."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_state import Job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

# The module sets these itself, or they make more or other than one job of this cluster out of the script.
RESERVED = frozenset("array chdir clusters job-name output parsable quiet test-only wait wrap".split())
_ARRAY = re.compile(r"^#SBATCH\s.*?(?<!\S)(-a|--array)\b", re.MULTILINE)
_SCHEMA = 1


class Spec(t.NamedTuple):
    """What the user wants to run."""

    name: str
    script: str
    args: list[str]
    options: dict[str, t.Any]
    environment: dict[str, str]
    chdir: str | None
    output: str | None
    record: str | None


def digest(spec: Spec) -> str:
    """Name the wanted job by its content: another script, option or record file is another job."""
    return hashlib.sha256(json.dumps(spec._asdict(), sort_keys=True, default=str).encode()).hexdigest()


def tag(spec: Spec) -> str:
    """The comment that lets a later run find a job whose record was never written."""
    return f"hpcai:{digest(spec)[:24]}"


def comment(spec: Spec) -> str:
    return str(spec.options.get("comment", tag(spec)))


def check(spec: Spec) -> None:
    """Refuse what sbatch would refuse late or misread."""
    if not spec.script.startswith("#!"):
        raise SlurmError("script must start with '#!' and an interpreter, for example '#!/bin/bash'")
    if _ARRAY.search(spec.script):
        raise SlurmError("script asks for a job array in an #SBATCH line; the module runs exactly one job")
    for key in spec.options:
        name = str(key).replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise SlurmError(f"options: {key!r} is not a long sbatch option such as 'ntasks_per_node'")
        if name in RESERVED:
            raise SlurmError(f"options: {key!r} cannot be set here; the module sets it or runs exactly one job")


def arguments(spec: Spec) -> list[str]:
    """The sbatch arguments before the script."""
    found = ["--parsable", f"--job-name={spec.name}"]
    found += [f"--chdir={spec.chdir}"] if spec.chdir else []
    found += [f"--output={spec.output}"] if spec.output else []
    found += [] if "comment" in spec.options else [f"--comment={tag(spec)}"]
    for key, value in sorted(spec.options.items()):
        name = f"--{key.replace('_', '-')}"
        if value is True:
            found.append(name)
        elif isinstance(value, (list, tuple)):
            found.append(f"{name}={','.join(str(item) for item in value)}")
        elif value is not None and value is not False:
            found.append(f"{name}={value}")
    return found


def submitted_id(out: str) -> int:
    """Read what ``sbatch --parsable`` printed: ``id`` or ``id;cluster``."""
    match = re.search(r"^(\d+)(;\S+)?$", out.strip(), re.MULTILINE)
    if not match:
        raise SlurmError(f"sbatch did not print a job id but {out.strip()!r}")
    return int(match.group(1))


def dump_record(spec: Spec, job: Job) -> str:
    record = {"schema": _SCHEMA, "digest": digest(spec), "job": job.as_dict()}
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def load_record(text: str, path: str) -> tuple[str, Job]:
    """Return the digest and the job that a record holds; another digest means that another job ran here before."""
    try:
        record = json.loads(text)
        if record["schema"] != _SCHEMA:
            raise ValueError(f"schema {record['schema']!r}")
        return str(record["digest"]), Job(**{**record["job"], "nodes": tuple(record["job"]["nodes"])})
    except (ValueError, KeyError, TypeError) as exc:
        raise SlurmError(f"{path} is not a job record ({exc!r}); move it away to submit again") from exc
