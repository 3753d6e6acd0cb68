"use strict";
// The recorded instructions of one backward pass, from top to bottom. Modules are boxes that open and close.

const TAPE = { row: 15, gapX: 22, gapY: 38, most: 36, letter: 7.3 };

function tapeSection() {
  const nodes = data.tape.nodes, plot = byId("tape-plot");
  if (!nodes.length) return () => {};
  const groups = new Map();  // by key: the nodes inside, and the boxes that show when it opens
  nodes.forEach((n, i) => {
    n.keys = n.path.map((_, d) => n.path.slice(0, d + 1).join("\u0000"));
    n.keys.forEach((key, d) => {
      if (!groups.has(key)) groups.set(key, { key, label: n.path.slice(d > 0 ? 1 : 0, d + 1).join("."), depth: d, parent: d ? n.keys[d - 1] : null, members: [], shows: new Set() });
      groups.get(key).members.push(i);
      groups.get(key).shows.add(d + 1 < n.keys.length ? n.keys[d + 1] : i);
    });
  });
  const open = new Set();
  openUpTo(TAPE.most);

  // The box that stands for a node: the outermost module around it that is closed, or the node itself.
  function standsFor(i) {
    for (const key of nodes[i].keys) if (!open.has(key)) return groups.get(key).members.length > 1 ? key : i;
    return i;
  }
  function openUpTo(most) {
    let shown = new Set(nodes.map((_, i) => standsFor(i))).size;
    for (let depth = 0; ; ++depth) {  // level by level: what is alike looks alike
      const level = [...groups.values()].filter((g) => g.depth === depth), closed = level.filter((g) => !open.has(g.key));
      if (!level.length) return;
      shown += closed.reduce((sum, g) => sum + g.shows.size - 1, 0);
      if (shown > most && (depth || most > TAPE.most)) return;
      for (const g of closed) open.add(g.key);
    }
  }

  function boxes() {
    const made = new Map(), reader = nodes.map((_, i) => standsFor(i));
    nodes.forEach((n, i) => {
      const id = reader[i];
      if (!made.has(id)) made.set(id, { id, members: [], sources: new Set(), layer: 0, x: made.size });
      made.get(id).members.push(i);
    });
    nodes.forEach((n, i) => n.sources.forEach((s) => { if (reader[s] !== reader[i]) made.get(reader[i]).sources.add(made.get(reader[s])); }));
    for (const b of made.values()) fill(b);
    // In the order of what they compute: parameters are older than all of it.
    const last = (b) => Math.max(...b.members.map((i) => (nodes[i].leaf ? -1 : i)));
    return [...made.values()].sort((a, b) => last(a) - last(b));
  }
  function fill(b) {
    const inside = b.members.map((i) => nodes[i]), sum = (k) => inside.reduce((s, n) => s + n[k], 0);
    b.group = typeof b.id === "string";
    const first = inside[0], forward = sum("forward"), backward = sum("backward");
    const times = [forward ? `fwd ${time(forward)}` : "", backward ? `bwd ${time(backward)}` : ""].filter(Boolean).join(", ");
    b.leaf = !b.group && first.leaf;
    b.title = b.group ? `${groups.get(b.id).label}  (${inside.length})` : first.name;
    b.lines = [b.group ? "" : first.type, times, sum("saved") ? `keeps ${bytes(sum("saved"))}` : ""].filter(Boolean);
    b.width = Math.max(58, TAPE.letter * Math.max(shortened(b.title, 40).length, ...b.lines.map((t) => t.length * 0.93)) + 18);
    b.height = 13 + TAPE.row * (1 + b.lines.length);
    b.weight = forward + backward;
  }

  function place(all) {
    const readers = new Map(all.map((b) => [b, []])), done = new Set();
    for (const b of all) for (const s of b.sources) readers.get(s).push(b);
    for (const b of all) {  // in the order of recording: an edge back, between two folded parts, does not count
      b.layer = 1 + Math.max(-1, ...[...b.sources].filter((s) => done.has(s)).map((s) => s.layer));
      done.add(b);
    }
    for (const b of all) if (!b.sources.size && readers.get(b).length) b.layer = Math.min(...readers.get(b).map((r) => r.layer)) - 1;
    const layers = new Map();
    for (const b of all) { if (!layers.has(b.layer)) layers.set(b.layer, []); layers.get(b.layer).push(b); }
    const ordered = [...layers.keys()].sort((a, b) => a - b).map((k) => layers.get(k));
    const space = (wanted) => ordered.forEach((row) => {
      row.sort((a, b) => wanted(a) - wanted(b));
      const middle = row.reduce((s, b) => s + wanted(b), 0) / row.length, total = row.reduce((s, b) => s + b.width + TAPE.gapX, -TAPE.gapX);
      let x = middle - total / 2;
      for (const b of row) { b.x = x + b.width / 2; x += b.width + TAPE.gapX; }
    });
    space((b) => b.x);
    for (let sweep = 0; sweep < 6; ++sweep) {
      const near = new Map(all.map((b) => { const n = sweep % 2 ? readers.get(b) : [...b.sources]; return [b, n.length ? n.reduce((s, o) => s + o.x, 0) / n.length : b.x]; }));
      space((b) => near.get(b));
    }
    let y = 16;
    for (const row of ordered) { for (const b of row) b.y = y; y += Math.max(...row.map((b) => b.height)) + TAPE.gapY; }
    const left = Math.min(...all.map((b) => b.x - b.width / 2)), right = Math.max(...all.map((b) => b.x + b.width / 2));
    return { left, width: right - left, height: y };
  }

  const view = { x: 0, y: 0, scale: 1 }, layer = element("g"), svg = element("svg", { role: "img", "aria-label": "Recorded instructions" });
  svg.append(layer);
  plot.append(svg);
  let extent = { left: 0, width: 1, height: 1 };
  const apply = () => layer.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  function fit(smallest = 0.05) {
    const w = plot.clientWidth, h = svg.clientHeight || 400;
    view.scale = Math.min(1.1, Math.max(smallest, Math.min((w - 24) / extent.width, (h - 12) / extent.height)));
    view.x = (w - extent.width * view.scale) / 2 - extent.left * view.scale;
    view.y = Math.max(0, (h - extent.height * view.scale) / 2);
    apply();
  }
  function draw() {
    if (!plot.clientWidth) return;
    const all = boxes();
    extent = place(all);
    layer.replaceChildren();
    for (const b of all)
      for (const s of b.sources) {
        const top = s.y + s.height, bottom = b.y, bend = Math.max(18, (bottom - top) / 2);
        layer.append(element("path", { class: "tape-edge", d: `M${s.x} ${top}C${s.x} ${top + bend} ${b.x} ${bottom - bend} ${b.x} ${bottom}` }));
      }
    for (const b of all) layer.append(drawBox(b));
    byId("tape-note").textContent = `${nodes.length.toLocaleString("en")} recorded instructions and parameters in ${all.length.toLocaleString("en")} boxes`
      + (data.tape.truncated ? "; the pass had more, which are not kept" : "") + ". Modules open when they are tapped, and close by the list below.";
    const opened = [...open].filter((k) => groups.get(k).members.length > 1).sort();
    byId("tape-open").replaceChildren(...opened.slice(0, 60).map((k) => element("button", { title: "fold", onclick: () => { close(k); draw(); } }, `▾ ${k.split("\u0000").join(" › ")}`)));
  }
  function close(key) { for (const k of [...open]) if (k === key || k.startsWith(`${key}\u0000`)) open.delete(k); }
  function drawBox(b) {
    const left = b.x - b.width / 2;
    const g = element("g", { class: "tape-hit" }, element("rect", { class: `tape-box${b.group ? " group" : b.leaf ? " leaf" : ""}`, x: left, y: b.y, width: b.width, height: b.height, rx: b.leaf ? 14 : 5 }),
      element("text", { class: "tape-title", x: b.x, y: b.y + 17, "text-anchor": "middle" }, shortened(b.title, 40)),
      ...b.lines.map((t, k) => element("text", { class: "tape-line", x: b.x, y: b.y + 17 + TAPE.row * (k + 1), "text-anchor": "middle" }, t)));
    g.addEventListener("click", () => { if (moved) return; if (b.group) { open.add(b.id); draw(); } describe(b); });
    return g;
  }
  function describe(b) {
    const n = nodes[b.members[0]];
    byId("tape-detail").replaceChildren(element("b", {}, b.title), ` ${b.lines.join(", ")}`,
      n.line ? element("div", {}, element("code", {}, n.line), " ", element("code", {}, n.source)) : null,
      n.path.length ? element("div", {}, n.path.join(" › ")) : null);
  }

  // Moving and zooming, by mouse, wheel and two fingers.
  const fingers = new Map();
  let moved = false;
  function zoom(factor, cx, cy) {
    const scale = Math.min(4, Math.max(0.05, view.scale * factor)), f = scale / view.scale;
    view.x = cx - (cx - view.x) * f; view.y = cy - (cy - view.y) * f; view.scale = scale;
    apply();
  }
  const inSvg = (p) => { const r = svg.getBoundingClientRect(); return [p.clientX - r.left, p.clientY - r.top]; };
  svg.addEventListener("wheel", (w) => { w.preventDefault(); zoom(Math.exp(-w.deltaY * 0.0018), ...inSvg(w)); }, { passive: false });
  svg.addEventListener("pointerdown", (p) => { fingers.set(p.pointerId, inSvg(p)); moved = false; });
  svg.addEventListener("pointermove", (p) => {
    if (!fingers.has(p.pointerId)) return;
    const before = fingers.get(p.pointerId), now = inSvg(p);
    if (Math.hypot(now[0] - before[0], now[1] - before[1]) > 3 || moved) {
      if (!moved) { moved = true; try { svg.setPointerCapture(p.pointerId); } catch (_) { /* the pointer is gone */ } }
      if (fingers.size === 1) { view.x += now[0] - before[0]; view.y += now[1] - before[1]; apply(); }
      else {
        const other = [...fingers.entries()].find(([id]) => id !== p.pointerId)[1], far = (q) => Math.max(10, Math.hypot(q[0] - other[0], q[1] - other[1]));
        zoom(far(now) / far(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      }
      fingers.set(p.pointerId, now);
    }
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) svg.addEventListener(end, (p) => fingers.delete(p.pointerId));
  byId("tape-in").onclick = () => zoom(1.4, plot.clientWidth / 2, svg.clientHeight / 2);
  byId("tape-out").onclick = () => zoom(1 / 1.4, plot.clientWidth / 2, svg.clientHeight / 2);
  byId("tape-fit").onclick = () => fit();
  byId("tape-fold").onclick = () => { open.clear(); draw(); fit(0.4); };
  byId("tape-unfold").onclick = () => { openUpTo(1500); draw(); fit(0.4); };
  let first = true;
  return () => { draw(); if (first && plot.clientWidth) { first = false; fit(0.7); } };
}
