# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records as dropped into config/data, and the query language as far as installers use it."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

from .store import Json, Store, UserError

# Fields that the data drop may give; others are refused, as a misspelled one would be lost.
FIELDS = {
    "Application.Setting": "Name Value Category Status Description",
    "AuthenticatedUser": "Name RawPassword Superuser ForcePasswordReset FirstName LastName Email UID Disabled",
    "Credential": "Name CredentialType PublicKey",
    "Cloud.Project": "Name Version ProjectType Url AutoUpgrade",
}
_TOKEN = re.compile(
    r"""\s*(?:(===|==|=\?=|=!=|!=|<=|>=|<|>|&&|\|\||!|\(|\)|,|=)|"((?:[^"\\]|\\.)*)"|'([^']*)'|([\w.*+-]+))"""
)


def drop(store: Store, folder: Path) -> list[str]:
    """Take in what lies in the folder; each file is renamed as soon as it is in."""
    done = []
    for path in sorted(folder.glob("*.json")):
        try:
            found = json.loads(path.read_text())
            records = found if isinstance(found, list) else [found]
            for record in records:
                check(record)
            for record in records:
                _put(store, record)
        except (ValueError, UserError, OSError) as exc:
            path.replace(path.with_name(path.name + ".failed"))
            store.ignored(f"data drop {path.name}: {exc}")
            continue
        path.replace(path.with_name(path.name + ".imported"))
        done.append(path.name)
    return done


def check(record: t.Any) -> None:
    if not isinstance(record, dict) or record.get("AdType") not in FIELDS:
        raise UserError(f"not a record of {sorted(FIELDS)}")
    unknown = set(record) - {"AdType", *FIELDS[record["AdType"]].split()}
    if unknown or not record.get("Name"):
        raise UserError(f"{record['AdType']}: unknown {sorted(unknown)} or no Name")


def _put(store: Store, record: Json) -> None:
    password = record.pop("RawPassword", None)
    made = dict(record)
    if password is not None:
        store.set_password(made, password)
    if made["AdType"] == "Cloud.Project":
        store.drop("Cloud.Project", Name=made["Name"], Version=made.get("Version"))
        store.state["records"].append(made)
        return
    store.put(made)


def visible(record: Json) -> Json:
    return {key: value for key, value in record.items() if not key.startswith("_") and key != "PasswordHash"}


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, t.Any]] = []
        place = 0
        text = text.rstrip().rstrip(";")
        while place < len(text):
            match = _TOKEN.match(text, place)
            if not match:
                raise UserError(f"Could not parse query near {text[place : place + 20]!r}")
            sign, double, single, word = match.groups()
            place = match.end()
            if sign:
                self.tokens.append(("sign", sign))
            elif word is None:
                self.tokens.append(("text", double.replace('\\"', '"') if double is not None else single))
            else:
                self.tokens.append(("word", word))

    def peek(self) -> tuple[str, t.Any]:
        return self.tokens[0] if self.tokens else ("end", "")

    def take(self) -> tuple[str, t.Any]:
        return self.tokens.pop(0) if self.tokens else ("end", "")

    def word(self, *allowed: str) -> str:
        kind, value = self.take()
        if kind != "word" or (allowed and value.lower() not in allowed):
            raise UserError(f"Could not parse query: expected {' or '.join(allowed) or 'a name'}, found {value!r}")
        return str(value)

    def expression(self) -> t.Callable[[Json], bool]:
        parts = [self._all()]
        while self.peek()[1] == "||" or (self.peek()[0] == "word" and self.peek()[1].lower() == "or"):
            self.take()
            parts.append(self._all())
        return lambda record: any(part(record) for part in parts)

    def _all(self) -> t.Callable[[Json], bool]:
        parts = [self._one()]
        while self.peek()[1] == "&&" or (self.peek()[0] == "word" and self.peek()[1].lower() == "and"):
            self.take()
            parts.append(self._one())
        return lambda record: all(part(record) for part in parts)

    def _one(self) -> t.Callable[[Json], bool]:
        if self.peek() == ("sign", "!"):
            self.take()
            inner = self._one()
            return lambda record: not inner(record)
        if self.peek() == ("sign", "("):
            self.take()
            inner = self.expression()
            self.take()
            return inner
        left = self._value()
        sign = self.peek()[1] if self.peek()[0] == "sign" else ""
        if sign not in {"===", "==", "!=", "=?=", "=!=", "<", ">", "<=", ">=", "="}:
            return lambda record: left(record) is True
        self.take()
        right = self._value()
        return lambda record: _compare(sign, left(record), right(record))

    def _value(self) -> t.Callable[[Json], t.Any]:
        kind, value = self.take()
        if kind == "text":
            return lambda dummy: value
        if kind != "word":
            raise UserError(f"Could not parse query near {value!r}")
        constant = {"true": True, "false": False, "undefined": None, "null": None}
        if value.lower() in constant:
            return lambda dummy: constant[value.lower()]
        if re.fullmatch(r"-?\d+(\.\d+)?", value):
            return lambda dummy: float(value)
        return lambda record: _field(record, value)


def _field(record: Json, name: str) -> t.Any:
    lower = {key.lower(): value for key, value in record.items()}
    return lower.get(name.lower())


def _compare(sign: str, left: t.Any, right: t.Any) -> bool:
    exact = sign in {"===", "=?=", "=!="}
    if isinstance(left, str) and isinstance(right, str) and not exact:
        left, right = left.lower(), right.lower()
    if sign in {"===", "==", "=?=", "="}:
        return bool(left == right)
    if sign in {"!=", "=!="}:
        return bool(left != right)
    if left is None or right is None:
        return False
    return bool({"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[sign])


def condition(text: str) -> t.Callable[[Json], bool]:
    """Make a test of what follows WHERE."""
    reader = _Reader(text)
    made = reader.expression()
    if reader.tokens:
        raise UserError(f"Could not parse query near {reader.tokens[0][1]!r}")
    return made


def execute(store: Store, rows: t.Callable[[str], list[Json]], text: str) -> list[Json]:
    """Answer SELECT, UPDATE and DELETE; `rows` makes the records of kinds that are not stored as such."""
    reader = _Reader(text)
    verb = reader.word("select", "update", "delete").lower()
    if verb == "select":
        return _select(store, rows, reader)
    if verb == "delete":
        reader.word("from")
    kind = reader.word()
    changes: Json = {}
    if verb == "update":
        reader.word("set")
        while True:
            name = reader.word()
            if reader.take()[1] not in {"=", ":="}:
                raise UserError("Could not parse query: expected =")
            changes[name] = reader._value()({})
            if reader.peek() != ("sign", ","):
                break
            reader.take()
    found = (
        [one for one in store.find(kind) if _where(reader)(one)]
        if not reader.tokens
        else _filtered(store, kind, reader)
    )
    if verb == "delete":
        store.state["records"] = [one for one in store.state["records"] if one not in found]
    for one in found:
        one.update(changes)
    return []


def _filtered(store: Store, kind: str, reader: _Reader) -> list[Json]:
    test = _where(reader)
    return [one for one in store.find(kind) if test(one)]


def _where(reader: _Reader) -> t.Callable[[Json], bool]:
    if not reader.tokens:
        return lambda dummy: True
    reader.word("where")
    return reader.expression()


def _select(store: Store, rows: t.Callable[[str], list[Json]], reader: _Reader) -> list[Json]:
    names = [reader.word()]
    while reader.peek() == ("sign", ","):
        reader.take()
        names.append(reader.word())
    reader.word("from")
    kind = reader.word()
    test = _where(reader)
    found = [visible(one) for one in [*store.find(kind), *rows(kind)] if test(one)]
    if names == ["*"]:
        return found
    return [{name: _field(one, name) for name in names if _field(one, name) is not None} for one in found]
