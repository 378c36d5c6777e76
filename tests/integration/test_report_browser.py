# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's script in a real browser, where there is one: its policy lets it run, and it finds nodes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet import read
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.page import page
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.report_fleet import invented

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
USE = """<script>
  const said = [];
  addEventListener("error", (event) => said.push(event.message));
  const query = document.getElementById("query");
  query.value = "h2d";
  query.dispatchEvent(new Event("input"));
  setTimeout(() => {
    document.querySelector("#find .nodes button").click();
    const map = document.getElementById("fleet-map"), box = map.getBoundingClientRect();
    map.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 9, clientY: box.top + 24, bubbles: true }));
    const strip = document.querySelector(".strip"), row = strip.getBoundingClientRect();
    strip.dispatchEvent(new PointerEvent("pointermove", { clientX: row.x + 2, clientY: row.y + 2, bubbles: true }));
    document.title = `errors: ${said.join("; ") || "none"}`;
  }, 1000);
</script></body>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser")


def shown(text: str, folder: Path) -> str:
    """Return the document as the browser has it after three seconds of its time."""
    (folder / "page.html").write_text(text)
    argv = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    argv += ["--virtual-time-budget=3000", "--dump-dom", (folder / "page.html").as_uri()]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=patience(120)).stdout


@pytest.mark.parametrize("nodes", [6, 300])
def test_script_runs_under_its_own_policy(nodes: int, tmp_path: Path) -> None:
    made = invented(nodes)
    text = page({}, read.certified(made.certificate, made.records()))
    assert 'class="live"' in shown(text, tmp_path)
    assert 'class="live"' not in shown(text.replace('"use strict";', '"use strict"; '), tmp_path)


@pytest.mark.parametrize("nodes", [6, 300])
def test_search_finds_and_a_click_shows_a_node(nodes: int, tmp_path: Path) -> None:
    made = invented(nodes)
    text = page({}, read.certified(made.certificate, made.records()))
    text = re.sub("script-src (&#x27;|')sha256-.*?(&#x27;|')", "script-src 'unsafe-inline'", text, count=1)
    seen = shown(text.replace("</body>", USE), tmp_path)
    slow = [name for name, about in made.certificate["nodes"].items() if "h2d" in about["reason"]]
    assert "<title>errors: none</title>" in seen
    assert f"{len(slow)} of {nodes} nodes" in seen.replace("\u00a0", " ")
    detail = re.search(r'id="detail".*?<h3>(.*?)</h3>', seen)
    assert detail and detail[1] in slow
