// Search, filter and look closer. The page says the same without this script, only less of it.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("fleet").textContent);
  const $ = (id) => document.getElementById(id);
  const count = data.nodes.length;
  const PAGE = 20;
  const SVG = "http://www.w3.org/2000/svg";

  // Data

  const column = (name) => {
    const packed = data.checks[name];
    const codes = new Uint8Array(count).fill(packed[0]);
    for (const [first, length, code] of packed.slice(1)) codes.fill(code, first, first + length);
    return codes;
  };
  const checks = Object.fromEntries(Object.keys(data.checks).map((name) => [name, column(name)]));
  const wrong = (node) => notesOf[node].filter((note) => note[0] < 3).sort((a, b) => a[0] - b[0]);
  const valueOf = (metric, node) => (metric.values ? metric.values[node] : (metric.other[node] ?? metric.common));
  const deviceOf = (metric, node) => {
    const found = metric.devices ? metric.devices[1].charCodeAt(node) - 48 : -1;
    return found >= 0 ? ` (${metric.devices[0].replace("gpu", "GPU")} ${found})` : "";
  };
  const leafOf = new Array(count).fill("");
  for (const [leaf, first, amount] of data.leaves) leafOf.fill(leaf, first, first + amount);
  const notesOf = Array.from({ length: count }, () => []);
  for (const [check, notes] of Object.entries(data.notes))
    for (const [node, code, reason] of notes) notesOf[node].push([code, check, data.reasons[reason]]);
  const testsOf = Array.from({ length: count }, () => []);
  for (const [round, tests] of data.rounds)
    for (const [nodes, code, ratio] of tests) for (const node of nodes) if (testsOf[node]) testsOf[node].push([round, nodes, code, ratio]);
  const haystack = data.nodes.map((name, node) =>
    [name, leafOf[node], data.hosts[node], data.statuses[data.status[node]][0], data.why[node] || "",
      ...wrong(node).map((note) => `${note[1]} ${note[2]}`)].join(" ").toLowerCase());

  // Markup; text never becomes markup.

  const el = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) if (value != null) made.setAttribute(key, value);
    made.append(...children.filter((child) => child != null));
    return made;
  };
  const chip = (verdict, symbol, word) =>
    el("span", { class: `chip v-${verdict}` }, el("span", { class: "symbol", "aria-hidden": "true" }, symbol), word);
  const statusChip = (node) => {
    const [status, verdict, symbol] = data.statuses[data.status[node]];
    return chip(verdict, symbol, status);
  };
  const verdictChip = (code) => chip(...data.verdicts[code], code === 6 ? "no result" : code === 7 ? "untested" : code === 3 ? "not judged" : data.verdicts[code][0]);
  const shorten = (text) => (text.length > 180 ? `${text.slice(0, 179).trimEnd()}…` : text);
  const percent = (share) => (share == null ? "–" : `${+(100 * share).toPrecision(3)} %`);
  const people = (name) => name.replace(/_/g, " ").replace(/\./g, " · ");

  // State

  const wanted = { words: [], statuses: new Set() };
  let shown = [];
  let limit = PAGE;
  let chosen = null;

  const matches = (node) =>
    (!wanted.statuses.size || wanted.statuses.has(data.status[node])) && wanted.words.every((word) => haystack[node].includes(word));
  const filtered = () => wanted.words.length || wanted.statuses.size;

  function update() {
    const order = [...Array(count).keys()].filter(matches);
    order.sort((a, b) => data.status[a] - data.status[b] || (data.certain[b] || 0) - (data.certain[a] || 0) || a - b);
    shown = filtered() ? order : order.filter((node) => data.statuses[data.status[node]][0] !== "cleared");
    const words = filtered()
      ? `${order.length.toLocaleString("en").replace(/,/g, " ")} of ${count.toLocaleString("en").replace(/,/g, " ")} nodes`
      : shown.length ? `${shown.length} not cleared` : "Every node was cleared. Search for one to see what was measured.";
    $("found").textContent = words;
    limit = PAGE;
    list();
    dim(order);
    strips(order);
  }

  function list() {
    const body = document.querySelector("#find .nodes tbody");
    body.replaceChildren(...shown.slice(0, limit).map((node) => {
      const open = el("button", { type: "button", class: "link" }, data.nodes[node]);
      open.addEventListener("click", () => choose(node, true));
      return el("tr", { class: node === chosen ? "chosen" : null },
        el("td", {}, statusChip(node)), el("td", {}, open), el("td", {}, leafOf[node] || "–"),
        el("td", { class: "number" }, percent(data.certain[node])), el("td", {}, shorten(data.why[node] || (wrong(node)[0] || [])[2] || "–")));
    }));
    $("more").hidden = shown.length <= limit;
    $("more").textContent = `More of ${shown.length}`;
  }

  // The map

  const map = $("fleet-map");
  const [pitch, across, side, blocks] = data.map;
  const squareOf = (node) => {
    const block = blocks.find(([first, amount]) => node >= first && node < first + amount);
    const at = node - block[0];
    return [block[2] + (at % across) * pitch, block[3] + Math.floor(at / across) * pitch];
  };
  const box = ([x, y], grow) => `M${x - grow} ${y - grow}h${side + 2 * grow}v${side + 2 * grow}h-${side + 2 * grow}z`;

  function dim(order) {
    const keep = new Set(order);
    const path = filtered() ? data.nodes.map((name, node) => (keep.has(node) ? "" : box(squareOf(node), 0.6))).join("") : "";
    map.querySelector(".dim").setAttribute("d", path);
    map.querySelector(".ring").setAttribute("d", chosen == null ? "" : box(squareOf(chosen), 1.5));
  }

  function nodeAt(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    for (const [first, amount, left, top] of blocks) {
      const x = Math.floor((point.x - left) / pitch);
      const y = Math.floor((point.y - top) / pitch);
      if (x >= 0 && x < across && y >= 0 && y * across + x < amount) return first + y * across + x;
    }
    return null;
  }

  // The heat map

  function strips(order) {
    order = order.slice().sort((a, b) => a - b);
    const rank = new Map(order.map((node, place) => [node, place]));
    const total = order.length;
    document.querySelectorAll(".heat tbody tr").forEach((row) => {
      const codes = checks[row.dataset.check];
      const svg = row.querySelector("svg");
      svg.setAttribute("viewBox", `0 0 ${Math.max(1, total)} 10`);
      svg.querySelectorAll("path:not(.between)").forEach((path) => path.remove());
      svg.querySelector("rect").setAttribute("width", total);
      const counts = [0, 1, 2].map((code) => order.filter((node) => codes[node] === code || (code === 1 && codes[node] === 6)).length);
      const chips = counts.map((amount, code) => (amount ? chip(...data.verdicts[code], amount) : null)).filter(Boolean);
      row.classList.toggle("quiet", !chips.length && total !== count);
      if (chips.length || total !== count) row.lastElementChild.replaceChildren(...chips);
      else if (row.faint) row.lastElementChild.replaceChildren(row.faint);
      const least = Math.max(1, total / 420);
      const lap = total / 20000; // no seams between neighbours
      [[7], [5], [3], [2], [1, 6], [0]].forEach((kinds) => {
        const drawn = order.filter((node) => kinds.includes(codes[node]))
          .map((node) => `M${Math.min(rank.get(node), total - least)} 0h${least + lap}v10h-${least + lap}z`).join("");
        if (!drawn) return;
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("d", drawn);
        path.setAttribute("class", kinds[0] === 7 ? "gap" : `mark v-${data.verdicts[kinds[0]][0]}`);
        svg.append(path);
      });
      const between = svg.querySelector(".between");
      if (between) {
        between.setAttribute("d", order.slice(1).map((node, place) => `M${place + 1} 0v10`).join(""));
        svg.append(between);
      }
      svg.order = order;
    });
    document.querySelectorAll(".heat .scale").forEach((scale) => { scale.hidden = total !== count; });
  }

  // One node

  function choose(node, jump) {
    chosen = node;
    const detail = $("detail");
    const bad = wrong(node);
    const tests = testsOf[node].map(([round, nodes, code, ratio]) => {
      const partners = nodes.filter((other) => other !== node).map((other) => data.nodes[other] ?? other).join(", ");
      return el("li", {}, verdictChip(code), ` ${round}: with ${partners || "nobody"}${ratio == null ? "" : `, ${Math.round(ratio * 100)} % of the median`}`);
    });
    const measured = data.metrics.filter((metric) => valueOf(metric, node) != null).map((metric) =>
      el("tr", {}, el("td", {}, people(metric.check)), el("td", {}, metric.name + deviceOf(metric, node)),
        el("td", { class: "number" }, `${valueOf(metric, node)} ${metric.unit}`), el("td", { class: "faint" }, metric.expected || "")));
    const all = Object.entries(checks).map(([name, codes]) => el("span", { class: "one", title: data.verdicts[codes[node]][0] }, verdictChip(codes[node]), el("span", {}, people(name))));
    detail.replaceChildren(...[
      el("div", { class: "head" }, el("h3", {}, data.nodes[node]), statusChip(node)),
      el("p", { class: "faint" }, [leafOf[node], data.hosts[node] && `host ${data.hosts[node]}`, data.certain[node] != null && `${percent(data.certain[node])} likely bad`, data.why[node]].filter(Boolean).join(" · ")),
      bad.length ? el("ul", { class: "notes" }, ...bad.map(([code, check, reason]) => el("li", {}, verdictChip(code), el("b", {}, people(check)), ` ${reason}`))) : null,
      tests.length ? el("details", { open: "" }, el("summary", {}, `${tests.length} tests with others`), el("ul", { class: "notes" }, ...tests)) : null,
      measured.length ? el("details", {}, el("summary", {}, `${measured.length} metrics`), el("table", { class: "list" }, el("tbody", {}, ...measured))) : null,
      el("details", {}, el("summary", {}, `${all.length} checks`), el("div", { class: "all" }, ...all)),
    ].filter(Boolean));
    detail.className = "shown";
    map.querySelector(".ring").setAttribute("d", box(squareOf(node), 1.5));
    list();
    if (jump) detail.focus({ preventScroll: true });
    detail.scrollIntoView({ block: "nearest" });
  }

  // What the pointer is over

  const tip = el("div", { class: "float", role: "presentation", hidden: "" });
  document.body.append(tip);
  function hover(event, node, check) {
    tip.hidden = node == null;
    if (node == null) return;
    const worst = check ? notesOf[node].find((note) => note[1] === check) : wrong(node)[0];
    const lines = check
      ? data.metrics.filter((metric) => metric.check === check && valueOf(metric, node) != null).slice(0, 4)
        .map((metric) => `${metric.name}${deviceOf(metric, node)}: ${valueOf(metric, node)} ${metric.unit}`)
      : [[leafOf[node], data.hosts[node]].filter(Boolean).join(" · ")];
    tip.replaceChildren(...[el("strong", {}, data.nodes[node]), check ? verdictChip(checks[check][node]) : statusChip(node),
      ...lines.filter(Boolean).map((line) => el("div", { class: "faint" }, line)),
      worst || (!check && data.why[node]) ? el("div", {}, shorten((!check && data.why[node]) || worst[2])) : null].filter(Boolean));
    const room = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - room.width - 10))}px`;
    tip.style.top = `${event.clientY + room.height + 24 > innerHeight ? event.clientY - room.height - 12 : event.clientY + 16}px`;
  }
  map.addEventListener("pointermove", (event) => hover(event, nodeAt(event)));
  map.addEventListener("pointerleave", (event) => hover(event, null));
  map.addEventListener("click", (event) => { const node = nodeAt(event); if (node != null) choose(node); });
  document.querySelectorAll(".heat tbody tr").forEach((row) => {
    const svg = row.querySelector("svg");
    const check = row.dataset.check;
    row.faint = row.querySelector(".faint");
    // Of the nodes that share a mark, the worst is meant.
    const at = (event) => {
      const order = svg.order || [];
      const space = svg.getBoundingClientRect();
      const place = ((event.clientX - space.left) / space.width) * order.length;
      const reach = Math.max(0.5, order.length / 420);
      const near = order.slice(Math.max(0, Math.floor(place - reach)), Math.ceil(place + reach));
      const bad = near.filter((node) => checks[check][node] < 3);
      return bad.length ? bad.reduce((a, b) => (checks[check][b] < checks[check][a] ? b : a)) : order[Math.floor(place)];
    };
    svg.addEventListener("pointermove", (event) => hover(event, at(event), check));
    svg.addEventListener("pointerleave", (event) => hover(event, null));
    svg.addEventListener("click", (event) => { const node = at(event); if (node != null) choose(node); });
  });

  // Controls

  let waiting;
  $("query").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { wanted.words = $("query").value.toLowerCase().split(/\s+/).filter(Boolean); update(); }, 120);
  });
  document.querySelectorAll("[data-status]").forEach((button) => button.addEventListener("click", () => {
    const status = button.dataset.status;
    if (!wanted.statuses.delete(status)) wanted.statuses.add(status);
    button.setAttribute("aria-pressed", String(wanted.statuses.has(status)));
    update();
  }));
  $("more").addEventListener("click", () => { limit += 4 * PAGE; list(); });
  $("controls").hidden = false;
  document.documentElement.classList.add("live");
  update();
})();
