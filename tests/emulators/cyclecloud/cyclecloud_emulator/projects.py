# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects: what `cyclecloud project upload` sends and where it lies."""

from __future__ import annotations

import configparser
import re
import shutil
import typing as t

from . import rest
from .store import Json, Store, UserError

if t.TYPE_CHECKING:
    from .server import Home


def upload(home: Home, store: Store, options: Json) -> str:
    """The files went ahead into a staging folder; here they become the project's version."""
    lockers = store.find("Cloud.Locker")
    name = options.get("locker") or (lockers[0]["Name"] if len(lockers) == 1 else "")
    locker = next((one for one in lockers if one["Name"] == name), None)
    if locker is None:
        raise UserError(f"Locker {name!r} not found; there are {[one['Name'] for one in lockers]}")
    if locker["State"] != "Created":
        raise UserError(f"Locker {name} is {locker['State']}: {locker.get('Message')}")
    project = options["project"]
    folder = home.folder / "data/lockers" / name / "projects" / project["name"] / project["version"]
    staged = home.folder / "data/staged" / options["upload"]
    wanted = sorted(project["files"])
    there = (
        sorted(str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file()) if staged.exists() else []
    )
    if wanted != there:
        raise UserError(f"The upload is incomplete: {set(wanted) ^ set(there)}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(folder)
    record = {"AdType": "Cloud.Project", "Name": project["name"], "Version": project["version"], "Locker": name}
    store.drop("Cloud.Project", Name=project["name"], Version=project["version"])
    store.state["records"].append(record)
    return f"Uploading to {locker['URL']}/projects/{project['name']}/{project['version']}\nUpload complete!"


def store_blob(home: Home, path: str, body: bytes) -> Json:
    match = re.fullmatch(r"([0-9a-f]{32})/([\w][\w./ -]*)", path)
    if not match or ".." in path.split("/"):
        raise rest.Refused(400, path)
    place = home.folder / "data/staged" / match[1] / match[2]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(body)
    return {}


def project_ini(text: str) -> tuple[str, str, list[str]]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    if not parser.has_option("project", "name") or not parser.has_option("project", "version"):
        raise UserError("project.ini has no [project] with name and version")
    blobs = [one.strip() for one in parser.get("blobs", "Files", fallback="").split(",") if one.strip()]
    return parser.get("project", "name"), parser.get("project", "version"), blobs
