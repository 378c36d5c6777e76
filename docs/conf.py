# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sphinx's settings for the site that ``make docs-site`` builds; nothing is fetched from anywhere."""

from __future__ import annotations

import typing as t

from sphinx.application import Sphinx

project = "hpcai.gpu_cluster"
copyright = "2026, the hpcai.gpu_cluster authors"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "furo"
html_title = "hpcai.gpu_cluster"
html_show_sphinx = False
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
# Headings begin at any depth that reads best on its own; Pygments has no lexer for a prompt with comments.
# References to other collections' pages are links to their documentation, which is not asked while building.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
default_role = "any"
nitpicky = False
highlight_language = "text"


def setup(app: Sphinx) -> None:
    """Have each page's sidebar name what is beside and below it, not all 300 pages: that was a third of the work."""
    app.connect("html-page-context", _collapse, priority=100)  # the theme asks at 500


def _collapse(
    dummy_app: Sphinx, dummy_page: str, dummy_template: str, context: dict[str, t.Any], *dummy: object
) -> None:
    if toctree := context.get("toctree"):
        context["toctree"] = lambda **options: toctree(**{**options, "collapse": True})
