# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module package_repository: a repository of packages whose key has a known fingerprint."""

from __future__ import annotations

import base64
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver import keys

Json = t.Dict[str, t.Any]
Fetch = t.Callable[[str], bytes]

SPEC: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "url": {"type": "str"},
    "suite": {"type": "str", "default": "/"},
    "components": {"type": "list", "elements": "str", "default": []},
    "key": {"type": "str", "no_log": False},
    "fingerprints": {"type": "list", "elements": "str", "default": []},
    "root": {"type": "path", "default": "/"},
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
_URL = re.compile(r"(https?|file):///?[^\s\[\]\"']+")


class RepositoryError(ValueError):
    """A repository cannot be set up; the text is fit for the user."""


class Places(t.NamedTuple):
    """Where the key and the description of a repository are."""

    key: str
    source: str


def places(name: str, manager: str) -> Places:
    if manager == "apt":
        return Places(f"/etc/apt/keyrings/hpcai-{name}.gpg", f"/etc/apt/sources.list.d/hpcai-{name}.list")
    return Places(f"/etc/pki/rpm-gpg/RPM-GPG-KEY-hpcai-{name}", f"/etc/yum.repos.d/hpcai-{name}.repo")


def source(params: t.Mapping[str, t.Any]) -> str:
    """Write the file that describes the repository."""
    name, url = params["name"], params["url"]
    head = f"# {_owned_files.MARK}, module package_repository. Changes made here are lost.\n"
    key = _at(Path(params["root"]), places(name, params["manager"]).key)
    if params["manager"] == "apt":
        words = " ".join([url, params["suite"], *params["components"]])
        return f"{head}deb [signed-by={key}] {words}\n"
    return f"{head}[hpcai-{name}]\nname=hpcai-{name}\nbaseurl={url}\nenabled=1\ngpgcheck=1\ngpgkey=file://{key}\n"


def others(files: t.Mapping[str, str], url: str, own: str) -> list[str]:
    """Return the files of others that name the repository: with two keys for one address apt reads neither."""
    plain = url.rstrip("/")
    found = []
    for path, text in sorted(files.items()):
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        if path != own and any(re.search(rf"{re.escape(plain)}/?(\s|$)", line) for line in lines):
            found.append(path)
    return found


def check(params: t.Mapping[str, t.Any]) -> None:
    if not _NAME.fullmatch(params["name"]):
        raise RepositoryError(f"name {params['name']!r}: lower case letters, digits and dashes are accepted")
    if params["state"] == "absent":
        return
    missing = [name for name in ("url", "key", "fingerprints") if not params[name]]
    if missing:
        raise RepositoryError(f"{', '.join(missing)} of the repository {params['name']} is needed")
    for word in [params["suite"], *params["components"]]:
        if not re.fullmatch(r"[\w./+-]+", word):
            raise RepositoryError(f"{word!r} is no suite and no component")
    if not _URL.fullmatch(params["url"]):
        raise RepositoryError(f"url {params['url']!r} is no address of a repository, such as https://host/path/")


def key_content(params: t.Mapping[str, t.Any], have: bytes | None, fetch: Fetch | None) -> bytes | None:
    """Return the key as it is to be on the host; None where it would have to be fetched and is not (check mode).

    A key that is there and is the expected one stays: it was proved when it came, and is proved again.
    """
    expected = params["fingerprints"]
    if have is not None:
        try:
            keys.proved(have, expected)
        except keys.KeyFault:
            pass
        else:
            return have
    if fetch is None:
        return None
    content = fetch(params["key"])
    try:
        packets = keys.proved(content, expected)
    except keys.KeyFault as exc:
        raise RepositoryError(f"the key from {params['key']} was not taken: {exc}") from exc
    return packets if params["manager"] == "apt" else content


def perform(module: _owned_files.FileModule, params: t.Mapping[str, t.Any], fetch: Fetch) -> Json:
    check(params)
    root, where = Path(params["root"]), places(params["name"], params["manager"])
    result: Json = {"changed": False, "elsewhere": [], "source": where.source, "key": where.key, "diff": []}
    if params["state"] == "absent":
        return _absent(module, root, where, result)
    result["elsewhere"] = others(_sources(root, params["manager"]), params["url"], where.source)
    if result["elsewhere"]:
        return result
    have = root / where.key[1:]
    content = key_content(params, have.read_bytes() if have.is_file() else None, None if module.check_mode else fetch)
    entries: list[Json] = []
    if content is None:
        result["changed"] = True
    else:
        entries.append({"path": _at(root, where.key), "base64": base64.b64encode(content).decode(), "owner": "root"})
    entries.append({"path": _at(root, where.source), "content": source(params), "owner": "root"})
    for entry in entries:
        changed, diff = _owned_files.keep(module, {"mode": "0644", **entry})
        result["changed"] = result["changed"] or changed
        result["diff"] += [diff] if diff else []
    return result


def _at(root: Path, path: str) -> str:
    return str(root / path[1:])


def _sources(root: Path, manager: str) -> dict[str, str]:
    patterns = {
        "apt": ("etc/apt/sources.list", "etc/apt/sources.list.d/*.list", "etc/apt/sources.list.d/*.sources"),
        "dnf": ("etc/yum.repos.d/*.repo",),
    }[manager]
    paths = [path for pattern in patterns for path in root.glob(pattern) if path.is_file()]
    return {f"/{path.relative_to(root)}": path.read_text(encoding="utf-8", errors="replace") for path in paths}


def _absent(module: _owned_files.FileModule, root: Path, where: Places, result: Json) -> Json:
    """Remove what we wrote: the source by its mark, the key with it."""
    place, key = root / where.source[1:], root / where.key[1:]
    ours = place.is_file() and _owned_files.MARK in place.read_text(encoding="utf-8", errors="replace")
    there = [path for path in (place, key) if ours and path.exists()]
    for path in [] if module.check_mode else there:
        path.unlink()
    return {**result, "changed": bool(there)}
