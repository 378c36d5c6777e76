# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which values look like secrets, by their names and by themselves.

A look can miss one: what is published needs a list of what goes in as well.
"""

from __future__ import annotations

import re
import typing as t

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# What a person or a program knows; a number may be one of these.
_PASSWORDS = {"pass", "password", "passwd", "passphrase", "passcode", "pwd", "pin"}
_NAMES = _PASSWORDS | {"secret", "token", "sas", "credential", "cred", "psk", "apikey", "jwt", "htpasswd"}
_PUBLIC_KEYS = {"public", "authorized", "known", "pub"}
# Endings that say how a secret is written.
_FORMS = {"pem", "b", "base", "hex", "value", "string", "text", "raw", "plain", "data", "content"}
# Endings that say that a value is about a secret: where it is, whose it is, how long it lasts.
_ABOUT = (
    "age algorithm command count days dir directory enabled file files group host hosts id length lifetime limit mode "
    "name names owner path paths policy required size socket type"
)
_ABOUT_SECRETS = set(_ABOUT.split())
_PATH = re.compile(r"~?/(?:[\w.@%+-]+/)+[\w.@%+-]*")
_NOT_SECRET = re.compile(r"(?i)|true|false|yes|no|none|null|\*+|\(?hidden\)?|[$%]\{?\w+\}?")
# name=value or name: value, as in mount options, slurmdbd.conf, a shell line or an embedded document.
_PAIR = re.compile(r"""([A-Za-z][\w.-]*)["']?\s*[=:]\s*("[^"]*"|'[^']*'|[^\s,;&"']*)""")
_SPELT = (
    ("a private key", re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")),
    ("a password in a URL", re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@")),
    # Not the NID of a Lustre server, 10.0.0.4@tcp, and not a digest, name:tag@sha256:…
    (
        "user:password@host",
        re.compile(r"(?<![\w/.-])[\w.-]+:[^\s:@/,]+@(?!(?:tcp|o2ib|gni|kfi|efa|sha)\d*\b)[A-Za-z0-9]"),
    ),
    ("a shared access signature", re.compile(r"(?i)(?:^|[?&;\s\"'])sig=[\w%+/=-]{8,}")),
    ("a key of a storage account", re.compile(r"(?i)\b(?:account|sharedaccess)key=[\w+/=]{8,}")),
    (
        "an access token",
        re.compile(r"\b(?:eyJ[\w-]{8,}\.[\w-]{8,}\.|gh[pousr]_\w{20,}|hf_\w{20,}|glpat-|xox[abps]-|ya29\.)"),
    ),
    ("an access key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("a token in a header", re.compile(r"(?i)\b(?:bearer|basic)\s+[\w.~+/-]{12,}=*")),
)
_RANDOM = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}")
_SSH_PUBLIC = re.compile(r"\b(?:ssh-[a-z0-9-]+|ecdsa-[a-z0-9-]+|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]+={0,2}")


def name_kind(name: str) -> str:
    """Return password, secret, or nothing, for what a variable with this name holds."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1] in _FORMS:
        words.pop()
    if not words or words[-1] in _ABOUT_SECRETS:
        return ""
    singular = [word[:-1] if word.endswith("s") and word not in _NAMES else word for word in words]
    if _PASSWORDS & set(singular):
        return "password"
    key = singular[-1] == "key" and not (_PUBLIC_KEYS & set(singular))
    return "secret" if key or _NAMES & set(singular) else ""


def value_kind(text: str) -> str:
    """Say what kind of secret a text holds, empty when none is seen."""
    for kind, pattern in _SPELT:
        if pattern.search(text):
            return kind
    for name, value in _PAIR.findall(text):
        # "key: x" and "sort-key=x" are everywhere.
        if name_kind(name) and not re.search(r"(?i)(^|[^_])\bkey$|-key$", name) and _is_secret(value.strip("\"'")):
            return f"a value for {name}"
    public = _SSH_PUBLIC.sub("", text)
    return "what looks like a key in base64" if any(map(_random, _RANDOM.findall(public))) else ""


def _is_secret(value: str) -> bool:
    return not (_NOT_SECRET.fullmatch(value) or _PATH.fullmatch(value))


def _random(run: str) -> bool:
    """Tell base64 of random bytes from a digest in hexadecimal and from a path."""
    kinds = (re.search(kind, run) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return all(kinds) and run.count("/") * 16 <= len(run)


def secrets(value: t.Any, path: str = "") -> dict[str, str]:
    """Return the paths of values that look like secrets, each with what makes it look like one."""
    if isinstance(value, dict):
        # {name: DB_PASSWORD, value: x}, as lists of an environment are written
        label = next((name for name in ("name", "key") if "value" in value and isinstance(value.get(name), str)), "")
        seen: dict[str, str] = {}
        for key, inner in value.items():
            if not label or key != label:
                name = value[label] if label and key == "value" else str(key)
                seen.update(_of_pair(name, inner, f"{path}.{key}".lstrip(".")))
        return seen
    if isinstance(value, (list, tuple)):
        return {
            key: kind for number, inner in enumerate(value) for key, kind in secrets(inner, f"{path}[{number}]").items()
        }
    kind = value_kind(value) if isinstance(value, str) else ""
    return {path: kind} if kind else {}


def _of_pair(name: str, inner: t.Any, path: str) -> dict[str, str]:
    kind = name_kind(name)
    if not kind:
        return secrets(inner, path)
    return dict.fromkeys(_leaves(inner, path, kind == "password"), f"its name, {name}") or secrets(inner, path)


def _leaves(value: t.Any, path: str, numbers: bool) -> list[str]:
    """Return the paths of texts below a name of a secret; of numbers where the name is that of a password."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}", numbers)]
    if isinstance(value, (list, tuple)):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, f"{path}[{index}]", numbers)]
    if isinstance(value, str):
        return [path] if _is_secret(value) else []
    return [path] if numbers and isinstance(value, (int, float)) and not isinstance(value, bool) else []
