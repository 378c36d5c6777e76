# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the NVMe scratch, checked before anything is looked at. Pure, private.

The module and the boot program come through here: a settings file that somebody edited is judged as a playbook is.
"""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import fields

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import FILESYSTEMS, kernel_name, plain_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Directory, Request

_NAME = re.compile(r"(?!md\d)[A-Za-z][A-Za-z0-9._-]{0,23}", re.ASCII)
_MODE = re.compile(r"[0-7]{3,4}", re.ASCII)
_OPTION = re.compile(r"[^\s,\\]+", re.ASCII)
_SYSTEM = set("bin boot dev etc lib lib64 proc sbin sys usr".split())
_WHOLE = set("/home /media /opt /root /run /srv /tmp /var /var/tmp /var/lib".split())
_LISTS = ("models", "ids", "wipe", "options", "adopt")


class RequestError(ValueError):
    """What is asked for makes no sense; the text is fit for the user."""


def parse(settings: t.Mapping[str, t.Any]) -> Request:
    """Return the request in a mapping with the names of its fields; what is left out or None has its default."""
    known = {item.name for item in fields(Request)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise RequestError(f"unknown settings: {', '.join(unknown)}")
    given = {key: value for key, value in settings.items() if value is not None}
    for key in _LISTS:
        if key in given:
            given[key] = tuple(_texts(key, given[key]))
    for key in ("ids", "wipe"):
        given[key] = tuple(_id(key, text) for text in given.get(key, ()))
    if "directories" in given:
        given["directories"] = tuple(_directory(item) for item in given["directories"])
    request = Request(**given)
    _check(request)
    return request


def _texts(key: str, value: t.Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item.strip() for item in value):
        raise RequestError(f"{key}: a list of texts is needed, not {value!r}")
    return [item.strip() for item in value]


def _id(key: str, text: str) -> str:
    if kernel_name(text):
        raise RequestError(
            f"{key}: {text} is a name that the kernel gives anew at each boot; name the disk by its serial number, "
            "wwid or /dev/disk/by-id name (the findings of a run list them)"
        )
    return plain_id(text)


def _directory(item: t.Any) -> Directory:
    try:
        wanted = Directory(**{key: value for key, value in dict(item).items() if value is not None})
    except (TypeError, ValueError) as exc:
        raise RequestError(f"directories: path, owner, group and mode are needed, not {item!r}: {exc}") from exc
    path = posixpath.normpath(wanted.path)
    if path.startswith("/") or path.split("/")[0] in (".", ".."):
        raise RequestError(f"directories: {wanted.path!r} is not a place below the mount; give a relative path")
    if not wanted.owner or not wanted.group:
        raise RequestError(f"directories: {path} needs an owner and a group")
    return Directory(path, wanted.owner, wanted.group, _mode(wanted.mode, f"directories: {path}"))


def _mode(text: str, where: str) -> str:
    if not isinstance(text, str) or not _MODE.fullmatch(text):
        raise RequestError(f'{where}: mode {text!r} is not one like "0755" (quote it)')
    return text.zfill(4)


def _check(request: Request) -> None:
    _check_types(request)
    _check_places(request)
    if not _NAME.fullmatch(request.name):
        raise RequestError(
            f"name: {request.name!r} cannot name an array: a letter, then at most 23 of A-Z a-z 0-9 . _ -"
        )
    if request.filesystem not in FILESYSTEMS:
        raise RequestError(f"filesystem: {request.filesystem!r} is not one of {', '.join(FILESYSTEMS)}")
    if request.fewer not in ("refuse", "allow"):
        raise RequestError(f"fewer: {request.fewer!r} is not refuse or allow")
    if request.count is not None and request.count < 0:
        raise RequestError(f"count: {request.count} disks cannot be")
    if request.chunk is not None and not (4 <= request.chunk <= 65536 and request.chunk & (request.chunk - 1) == 0):
        raise RequestError(f"chunk: {request.chunk} KiB is not a power of two from 4 to 65536")
    wrong = [option for option in request.options if not _OPTION.fullmatch(option)]
    if wrong:
        raise RequestError(f"options: {wrong[0]!r} is not one mount option")
    if _mode(request.mode, "mode") != request.mode:
        raise RequestError(f'mode: {request.mode!r} needs four digits, like "1777"')
    paths = [item.path for item in request.directories]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise RequestError(f"directories: {twice[0]} is listed twice")


def _check_types(request: Request) -> None:
    for key in ("name", "mount", "filesystem", "fewer", "mode", "fallback"):
        if not isinstance(getattr(request, key), str):
            raise RequestError(f"{key}: a text is needed, not {getattr(request, key)!r}")
    for key in ("count", "chunk"):
        value = getattr(request, key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise RequestError(f"{key}: a whole number is needed, not {value!r}")
    for key in ("unused", "rebuild"):
        if not isinstance(getattr(request, key), bool):
            raise RequestError(f"{key}: true or false is needed, not {getattr(request, key)!r}")


def _check_places(request: Request) -> None:
    fallback = {"fallback": request.fallback} if request.fallback else {}
    for key, path in {"mount": request.mount, **{f"adopt {p}": p for p in request.adopt}, **fallback}.items():
        if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//") or " " in path:
            raise RequestError(f"{key}: {path!r} is not a plain absolute path")
    if request.mount == "/" or request.mount.split("/")[1] in _SYSTEM or request.mount in _WHOLE:
        raise RequestError(f"mount: {request.mount} belongs to the system; give scratch a directory of its own")
    # Beside it is the usual case: /mnt/resource_nvme, and Azure's resource disk at /mnt.
    bases = [f"{base}/{request.name}" for base in (request.fallback, *request.adopt) if base]
    around = [base for base in bases if f"{request.mount}/".startswith(f"{base}/")]
    if around:
        raise RequestError(f"mount: {request.mount} is inside {around[0]}, where scratch would show itself")
    if f"{request.fallback}/".startswith(f"{request.mount}/"):
        raise RequestError(
            f"fallback: {request.fallback} is in the mount itself; name the directory that stands in for it"
        )
