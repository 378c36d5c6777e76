# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML and SVG built from values: whatever is not markup already is escaped, so nothing can be forgotten. Private."""

from __future__ import annotations

import html
import json
import re
import typing as t

VOID = {"meta", "link", "br", "input"}
# Characters that HTML does not allow, and halves of surrogate pairs, which UTF-8 cannot hold.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Markup that is safe to print as it is."""

    __slots__ = ()


Child = t.Union[str, int, float, None, t.Iterable[t.Any]]


def esc(value: t.Any) -> Html:
    """Escape a value; markup passes."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(_FORBIDDEN.sub("\ufffd", str(value)), quote=True))


def join(children: t.Iterable[Child]) -> Html:
    """Join children (markup, text, numbers, nested lists); None is nothing."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, (str, int, float)):
            parts.append(esc(child))
        else:
            parts.append(join(child))
    return Html("".join(parts))


def el(name: str, *children: Child, **attributes: t.Any) -> Html:
    """Return an element; ``class_`` means class, ``aria_label`` aria-label, an attribute of None is left out."""
    pairs = [
        f' {key.rstrip("_").replace("_", "-")}="{esc(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    ]
    start = f"<{name}{''.join(pairs)}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def json_block(data: t.Any, name: str) -> Html:
    """Embed data for other programs; no text in it can end the block."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{esc(name)}">{text}</script>')
