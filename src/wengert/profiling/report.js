"use strict";
// The report of a profile: everything is drawn here, from the data in this file; nothing is loaded.
const data = JSON.parse(document.getElementById("data").textContent);
const PHASES = ["forward", "backward", "update"];
const byId = (id) => document.getElementById(id);

// ------------------------------------------------------------------------------------------------ small things

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "text", "path", "line", "circle", "title"].includes(name);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (key === "style") e.style.cssText = value;
    else e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}
function digits(x) { return x >= 1000 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(3))); }
function time(s) {
  if (!s) return "0";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) if (s >= size) return `${digits(s / size)} ${unit}`;
  return `${digits(s * 1e9)} ns`;
}
function bytes(n) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (Math.abs(n) >= size) return `${digits(n / size)} ${unit}`;
  return `${Math.round(n)} B`;
}
function count(n, unit) {
  for (const [prefix, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (n >= size) return `${digits(n / size)} ${prefix}${unit}`;
  return n ? `${digits(n)} ${unit}` : "";
}
const percent = (x) => (x === null || x === undefined ? "" : `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)} %`);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const shortened = (text, n) => (text.length <= n ? text : text.slice(0, Math.max(1, n - 1)) + "…");
const breakable = (name) => name.replaceAll(/[./]/g, "$&\u200b");  // a line may end after a dot
function legend(entries) {
  return element("div", { class: "legend" }, ...entries.map(([name, tint, value]) =>
    element("span", {}, element("i", { style: `background:var(--${tint})` }), name, value ? " " : "",
      value ? element("b", {}, value) : "")));
}

// ------------------------------------------------------------------------------------------------ sections

const absent = new Set([["tape", data.tape.nodes], ["gradients", data.gradients.rows]].filter(([, there]) => !there.length).map(([name]) => name));
const drawn = {};  // sections that were shown, and what draws them again
function show(name) {
  if (!byId(`s-${name}`) || absent.has(name)) name = "summary";
  for (const s of document.querySelectorAll("main > section")) s.hidden = s.id !== `s-${name}`;
  for (const b of document.querySelectorAll("nav button")) {
    b.setAttribute("aria-selected", b.dataset.to === name);
    if (b.dataset.to === name) b.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  if (!drawn[name]) drawn[name] = (sections[name] || (() => () => {}))();
  drawn[name]();
  history.replaceState(null, "", `#${name}`);
}
function redraw() { for (const draw of Object.values(drawn)) draw(); }

// ------------------------------------------------------------------------------------------------ summary

function summarySection() {
  const t = data.totals, facts = byId("facts");
  const fact = (value, what) => facts.append(element("div", { class: "card fact" }, element("b", {}, value), element("span", {}, what)));
  fact(time(t.seconds), "in all");
  fact(t.ops.toLocaleString("en"), "ops ran");
  fact(percent(t.in_ops / t.seconds), "of the time was in ops");
  fact(bytes(t.peak_bytes), "of memory at most");
  fact(count(t.flops, "FLOP") || "0", "of arithmetic");
  if (t.roofline !== null) fact(percent(t.roofline), "of what the machine can do, in ops");
  const between = Math.max(0, t.seconds - t.in_ops - t.preparing - t.looking);
  const parts = [...PHASES.map((p) => [p, p, t.phases[p]]), ["prepared, once", "prepared", t.preparing],
    ["this profile's looks at gradients", "mixed", t.looking], ["between ops", "between", between]].filter((p) => p[2] > 0);
  const whole = parts.reduce((sum, p) => sum + p[2], 0) || 1;
  byId("split").append(...parts.map(([name, tint, s]) =>
    element("i", { style: `background:var(--${tint});flex:${s / whole}`, title: `${name}: ${time(s)}` })));
  byId("split-legend").append(legend(parts.map(([name, tint, s]) => [name, tint, time(s)])));
  const findings = byId("findings");
  for (const f of data.findings)
    findings.append(element("div", { class: "finding" }, f.text, f.line ? element("div", {}, element("code", {}, f.line)) : null));
  if (!data.findings.length) findings.append(element("p", { class: "note" }, "Nothing stands out."));
  bars(byId("top-ops"), data.tables.op.slice(0, 8));
  bars(byId("top-lines"), data.tables.line.slice(0, 8));
  return () => {};
}
function bars(place, rows) {
  const most = Math.max(...rows.map((r) => r.seconds), 1e-12);
  for (const r of rows)
    place.append(element("div", { class: "bar", title: r.note || r.name }, element("span", { class: "mono" }, r.note ? `${r.name}  ${r.note}` : r.name),
      element("span", { class: "track" }, ...PHASES.map((p) => r[p] ? element("i", { style: `background:var(--${p});width:${(100 * r[p]) / most}%` }) : null)),
      element("span", { class: "number" }, `${time(r.seconds)} · ${percent(r.share)}`)));
}

// ------------------------------------------------------------------------------------------------ timeline

function timelineSection() {
  const e = data.events, plot = byId("timeline-plot"), canvas = element("canvas", { tabindex: 0, role: "img",
    "aria-label": "Ops over time, one row per thread and depth" });
  plot.append(canvas);
  const lanes = [], laneOf = new Map();
  for (let i = 0; i < e.start.length; ++i) {
    const key = e.thread[i] * 256 + e.depth[i];
    if (!laneOf.has(key)) laneOf.set(key, -1);
  }
  [...laneOf.keys()].sort((a, b) => a - b).forEach((key, k) => { laneOf.set(key, k); lanes.push(key); });
  const ROW = 30, TOP = 26, MAP = 34, whole = Math.max(data.totals.seconds, 1e-9);
  let from = 0, to = whole, chosen = -1;
  const height = TOP + MAP + ROW * Math.max(1, lanes.length) + 6;

  function draw() {
    const width = plot.clientWidth, scale = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = `${height}px`;
    const c = canvas.getContext("2d"), x = (t) => ((t - from) / (to - from)) * width;
    c.scale(scale, scale);
    c.clearRect(0, 0, width, height);
    for (const s of data.spans) {
      const lane = laneOf.get(s.thread * 256);
      if (lane === undefined) continue;
      c.fillStyle = color(s.kind ? "mixed" : "prepared");
      c.fillRect(x(s.start), MAP + TOP + ROW * lane, Math.max(0.7, x(s.start + s.length) - x(s.start)), ROW - 5);
    }
    const tints = PHASES.map(color), ink = color("on-color"), quiet = color("quiet"), rule = color("rule");
    overview(c, width, tints, rule);
    c.font = "11px system-ui, sans-serif"; c.fillStyle = quiet; c.textBaseline = "middle";
    const step = niceStep((to - from) / Math.max(2, width / 110));
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      c.fillStyle = rule; c.fillRect(x(t), MAP + 16, 1, height);
      c.fillStyle = quiet; c.fillText(time(t) , Math.min(x(t) + 3, width - 44), MAP + 10);
    }
    c.font = "11px ui-monospace, Menlo, Consolas, monospace";
    for (let i = 0; i < e.start.length; ++i) {
      const a = x(e.start[i]), b = x(e.start[i] + e.length[i]);
      if (b < 0 || a > width) continue;
      const y = MAP + TOP + ROW * laneOf.get(e.thread[i] * 256 + e.depth[i]), w = Math.max(0.7, b - a - (b - a > 3 ? 0.7 : 0));
      c.fillStyle = tints[e.phase[i]];
      c.fillRect(a, y, w, ROW - 5);
      if (i === chosen) { c.strokeStyle = color("ink"); c.lineWidth = 2; c.strokeRect(a, y, w, ROW - 5); }
      if (w > 34) {
        c.save(); c.beginPath(); c.rect(Math.max(0, a), y, w, ROW); c.clip(); c.fillStyle = ink;
        c.fillText(data.signatures[e.signature[i]].name, Math.max(0, a) + 4, y + (ROW - 5) / 2); c.restore();
      }
    }
  }
  // How busy the whole profile was, with the part that is shown below.
  const BINS = 240, busy = PHASES.map(() => new Float64Array(BINS));
  for (let i = 0; i < e.start.length; ++i) {
    if (e.depth[i]) continue;
    const first = Math.min(BINS - 1, Math.floor((e.start[i] / whole) * BINS));
    const last = Math.min(BINS - 1, Math.floor(((e.start[i] + e.length[i]) / whole) * BINS));
    for (let k = first; k <= last; ++k)
      busy[e.phase[i]][k] += Math.max(0, Math.min(e.start[i] + e.length[i], ((k + 1) * whole) / BINS) - Math.max(e.start[i], (k * whole) / BINS)) / (whole / BINS);
  }
  function overview(c, width, tints, rule) {
    c.fillStyle = color("hover"); c.fillRect(0, 0, width, MAP - 6);
    for (let k = 0; k < BINS; ++k) {
      let y = MAP - 6;
      PHASES.forEach((_, p) => { const h = Math.min(y, busy[p][k] * (MAP - 6)); c.fillStyle = tints[p]; c.fillRect((k * width) / BINS, y - h, width / BINS + 0.5, h); y -= h; });
    }
    c.strokeStyle = color("ink"); c.lineWidth = 1.5;
    c.strokeRect((from / whole) * width + 0.5, 0.5, Math.max(3, ((to - from) / whole) * width - 1), MAP - 7);
  }
  function niceStep(s) {
    const size = 10 ** Math.floor(Math.log10(s));
    return [1, 2, 5, 10].map((k) => k * size).find((k) => k >= s);
  }
  function view(a, b) {
    const span = Math.min(whole, Math.max(b - a, 1e-8));
    from = Math.min(Math.max(0, a), whole - span); to = from + span; draw();
  }
  function zoom(factor, at = (from + to) / 2) { view(at - (at - from) * factor, at + (to - at) * factor); }
  const timeAt = (clientX) => from + ((clientX - canvas.getBoundingClientRect().left) / plot.clientWidth) * (to - from);
  canvas.addEventListener("wheel", (w) => {
    if (!(w.ctrlKey || w.metaKey || w.shiftKey) && Math.abs(w.deltaY) > Math.abs(w.deltaX) && from === 0 && to === whole && w.deltaY > 0) return;
    w.preventDefault();
    if (Math.abs(w.deltaX) > Math.abs(w.deltaY)) view(from + (w.deltaX / plot.clientWidth) * (to - from), to + (w.deltaX / plot.clientWidth) * (to - from));
    else zoom(Math.exp(w.deltaY * 0.0022), timeAt(w.clientX));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (p) => { drag = { x: p.clientX, from, to, moved: false, map: p.offsetY < MAP }; if (drag.map) centre(p); canvas.setPointerCapture(p.pointerId); });
  canvas.addEventListener("pointermove", (p) => {
    if (!drag) return;
    if (drag.map) return centre(p);
    const by = ((p.clientX - drag.x) / plot.clientWidth) * (drag.to - drag.from);
    drag.moved = drag.moved || Math.abs(p.clientX - drag.x) > 4;
    if (drag.moved) view(drag.from - by, drag.to - by);
  });
  canvas.addEventListener("pointerup", (p) => { if (drag && !drag.moved && !drag.map) choose(p); drag = null; });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  function centre(p) {
    const t = ((p.clientX - canvas.getBoundingClientRect().left) / plot.clientWidth) * whole, half = (to - from) / 2;
    if (half * 2 < whole) view(t - half, t + half);
  }
  canvas.addEventListener("keydown", (k) => {
    const by = (to - from) * 0.2;
    const act = { ArrowLeft: () => view(from - by, to - by), ArrowRight: () => view(from + by, to + by), "+": () => zoom(0.6), "-": () => zoom(1.6), Home: () => view(0, whole) }[k.key];
    if (act) { k.preventDefault(); act(); }
  });
  function choose(p) {
    const t = timeAt(p.clientX), lane = Math.floor((p.offsetY - MAP - TOP) / ROW), slack = ((to - from) / plot.clientWidth) * 3;
    let best = -1, distance = Infinity;
    for (let i = 0; i < e.start.length; ++i) {
      if (laneOf.get(e.thread[i] * 256 + e.depth[i]) !== lane) continue;
      const off = Math.max(e.start[i] - t, t - e.start[i] - e.length[i], 0);
      if (off <= slack && off < distance) { best = i; distance = off; }
    }
    chosen = best; describe(); draw();
  }
  function describe() {
    const box = byId("timeline-detail");
    if (chosen < 0) { box.textContent = "Drag to move, scroll or use the buttons to zoom, tap an op to read about it."; return; }
    const i = chosen, s = data.signatures[e.signature[i]], line = data.lines[e.line[i]];
    box.replaceChildren(element("b", {}, s.name), ` ${PHASES[e.phase[i]]}, ${time(e.length[i])}, ${time(e.start[i])} after the start`,
      s.types ? element("div", { class: "mono" }, s.types) : null,
      element("div", {}, element("code", {}, line.place), " ", element("code", {}, line.source)),
      e.module[i] ? element("div", {}, `module ${data.modules[e.module[i]].path}`) : null,
      element("div", { class: "note" }, [count(s.flops, "FLOP"), s.flops ? count(s.flops / e.length[i], "FLOP/s") : "", `${bytes(e.bytes[i])} moved`].filter(Boolean).join(", ")));
  }
  byId("timeline-in").onclick = () => zoom(0.5);
  byId("timeline-out").onclick = () => zoom(2);
  byId("timeline-all").onclick = () => view(0, whole);
  byId("timeline-legend").append(legend([...PHASES.map((p) => [p, p]), ...(data.spans.some((s) => !s.kind) ? [["prepared, once", "prepared"]] : [])]));
  describe();
  return draw;
}

// ------------------------------------------------------------------------------------------------ flame graph

function flameSection() {
  const plot = byId("flame-plot"), ROW = 24;
  let by = "line", path = [];
  const tint = (n) => n.k || (n.n === "between ops" ? "between" : "mixed");
  function draw() {
    const width = plot.clientWidth;
    if (!width) return;
    let root = data.flames[by];
    for (const k of path) root = root.c[k];
    const chain = [data.flames[by]];
    for (const k of path) chain.push(chain[chain.length - 1].c[k]);
    const svg = element("svg", { class: "flame", role: "img", "aria-label": "Flame graph" });
    let deepest = 0;
    const block = (n, x, w, row, go) => {
      deepest = Math.max(deepest, row + 1);
      const g = element("g", n.k ? {} : { class: "plain" }, element("title", {}, `${n.n}\n${time(n.v)}, ${percent(n.v / data.flames[by].v)} of all`),
        element("rect", { x, y: row * ROW, width: Math.max(0.5, w), height: ROW - 1, rx: 3, fill: `var(--${tint(n)})` }));
      const letters = Math.floor((w - 8) / 6.6);
      if (letters > 2) g.append(element("text", { x: x + 5, y: row * ROW + 16 }, shortened(n.n, letters)));
      g.addEventListener("click", () => { go(); draw(); describe(n); });
      g.addEventListener("pointerenter", () => describe(n));
      svg.append(g);
    };
    chain.slice(0, -1).forEach((n, row) => block(n, 0, width, row, () => { path = path.slice(0, row); }));
    const place = (n, x, w, row, at) => {
      if (w < 0.6) return;
      block(n, x, w, row, () => { path = at; });
      let left = x;
      (n.c || []).forEach((child, k) => { const cw = n.v ? (child.v / n.v) * w : 0; place(child, left, cw, row + 1, [...at, k]); left += cw; });
    };
    place(root, 0, width, chain.length - 1, path);
    svg.setAttribute("height", deepest * ROW);
    svg.setAttribute("viewBox", `0 0 ${width} ${deepest * ROW}`);
    plot.replaceChildren(svg);
  }
  function describe(n) {
    byId("flame-detail").replaceChildren(element("b", {}, n.n), ` ${time(n.v)}, ${percent(n.v / data.flames[by].v)} of all`,
      n.t ? element("div", {}, element("code", {}, n.t)) : null);
  }
  for (const button of document.querySelectorAll("[data-flame]"))
    button.addEventListener("click", () => {
      by = button.dataset.flame; path = [];
      for (const b of document.querySelectorAll("[data-flame]")) b.setAttribute("aria-pressed", b === button);
      draw();
    });
  byId("flame-legend").append(legend([...PHASES.map((p) => [p, p]), ["between ops", "between"], ["mixed", "mixed"]]));
  return draw;
}

// ------------------------------------------------------------------------------------------------ memory

function memorySection() {
  const m = data.memory, plot = byId("memory-plot"), H = 260, LEFT = 66, BOTTOM = 24;
  const names = Object.keys(m.categories).filter((n) => m.categories[n].some((v) => v > 0));
  const top = Math.max(...m.times.map((_, i) => names.reduce((s, n) => s + m.categories[n][i], 0)), 1);
  const whole = Math.max(data.totals.seconds, 1e-9);
  function draw() {
    const width = plot.clientWidth;
    if (!width) return;
    const x = (t) => LEFT + (t / whole) * (width - LEFT - 4), y = (b) => 6 + (1 - b / top) * (H - BOTTOM - 6);
    const svg = element("svg", { height: H, viewBox: `0 0 ${width} ${H}`, role: "img", "aria-label": "Memory over time by category" });
    for (let k = 0; k <= 4; ++k) {
      svg.append(element("line", { x1: LEFT, x2: width, y1: y((top * k) / 4), y2: y((top * k) / 4), stroke: "var(--rule)" }),
        element("text", { x: LEFT - 8, y: y((top * k) / 4) + 4, "text-anchor": "end" }, bytes((top * k) / 4)));
      if (k) svg.append(element("text", { x: x((whole * k) / 4), y: H - 6, "text-anchor": k === 4 ? "end" : "middle" }, time((whole * k) / 4)));
    }
    let below = m.times.map(() => 0);
    for (const name of names) {
      const above = m.categories[name].map((v, i) => below[i] + Math.max(0, v));
      // Memory stays as it is between two changes: steps, not slopes.
      const steps = (values, reverse) => {
        const points = [];
        values.forEach((v, i) => { points.push([x(m.times[i]), y(v)]); points.push([x(i + 1 < values.length ? m.times[i + 1] : whole), y(v)]); });
        return (reverse ? points.reverse() : points).map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L");
      };
      svg.append(element("path", { d: `M${steps(above)}L${steps(below, true)}Z`, fill: `var(--${name})` }));
      below = above;
    }
    const px = x(m.peak_time);
    svg.append(element("line", { x1: px, x2: px, y1: 0, y2: H - BOTTOM, stroke: "var(--ink)", "stroke-dasharray": "3 3" }),
      element("text", { x: px + (px > width - 150 ? -6 : 6), y: 14, "text-anchor": px > width - 150 ? "end" : "start", class: "over" }, `peak ${bytes(m.peak_bytes)}`));
    const cursor = element("line", { y1: 0, y2: H - BOTTOM, stroke: "var(--quiet)", visibility: "hidden" });
    svg.append(cursor);
    svg.addEventListener("pointermove", (p) => {
      const t = Math.max(0, Math.min(whole, ((p.clientX - svg.getBoundingClientRect().left - LEFT) / (width - LEFT - 4)) * whole));
      let i = 0;
      while (i + 1 < m.times.length && m.times[i + 1] <= t) ++i;
      cursor.setAttribute("x1", x(t)); cursor.setAttribute("x2", x(t)); cursor.setAttribute("visibility", "visible");
      byId("memory-detail").replaceChildren(element("b", {}, `${time(t)} after the start: ${bytes(names.reduce((s, n) => s + m.categories[n][i], 0))}`),
        legend(names.map((n) => [n, n, bytes(m.categories[n][i])])));
    });
    plot.replaceChildren(svg);
  }
  byId("memory-detail").append(legend(names.map((n) => [n, n])));
  const most = Math.max(...m.contents.map((h) => h.bytes), 1);
  for (const h of m.contents.slice(0, 24))
    byId("memory-contents").append(element("div", { class: "bar", title: h.source || h.line },
      element("span", { class: "mono" }, h.source ? `${h.line}  ${h.source}` : h.line),
      element("span", { class: "track" }, element("i", { style: `background:var(--${h.category});width:${(100 * h.bytes) / most}%` })),
      element("span", { class: "number" }, `${bytes(h.bytes)}${h.tensors ? ` · ${h.tensors.toLocaleString("en")}×` : ""} ${h.category}`)));
  return draw;
}

// ------------------------------------------------------------------------------------------------ tables

function tablesSection() {
  let by = "op", key = "seconds", down = true, filter = "";
  const columns = [["name", "name"], ["seconds", "time", time], ["share", "share", percent], ["forward", "forward", time], ["backward", "backward", time],
    ["around", "before it", time], ["calls", "calls", (n) => n.toLocaleString("en")], ["each", "per call", time], ["rate", "FLOP/s", (x) => count(x, "")],
    ["moved", "moved/s", (x) => (x ? bytes(x) : "")], ["roofline", "of roofline", percent]];
  function draw() {
    const shownColumns = by === "module" ? [columns[0], ["inclusive", "with inside", time], ...columns.slice(1)] : columns;
    const rows = data.tables[by].filter((r) => (r.name + r.note).toLowerCase().includes(filter))
      .sort((a, b) => (key === "name" ? a.name.localeCompare(b.name) : (a[key] ?? -1) - (b[key] ?? -1)) * (down ? -1 : 1));
    const head = element("tr", {}, ...shownColumns.map(([k, title]) => {
      const th = element("th", { scope: "col", tabindex: 0 }, title);
      if (k === key) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sort = () => { down = k === key ? !down : k !== "name"; key = k; draw(); };
      th.addEventListener("click", sort);
      th.addEventListener("keydown", (e) => { if (e.key === "Enter") sort(); });
      return th;
    }));
    const body = rows.slice(0, 500).map((r) => element("tr", {}, ...shownColumns.map(([k, , text]) => element("td", {}, k === "name"
      ? element("span", { class: "mono" }, breakable(r.name), r.note ? element("span", { class: "source" }, r.note) : null) : text(r[k])))));
    byId("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  }
  for (const button of document.querySelectorAll("[data-table]"))
    button.addEventListener("click", () => {
      by = button.dataset.table; key = by === "module" ? "inclusive" : "seconds"; down = true;
      for (const b of document.querySelectorAll("[data-table]")) b.setAttribute("aria-pressed", b === button);
      draw();
    });
  byId("table-filter").addEventListener("input", (e) => { filter = e.target.value.toLowerCase(); draw(); });
  return draw;
}

// ------------------------------------------------------------------------------------------------ gradients

function gradientsSection() {
  const g = data.gradients;
  if (!g || !g.rows.length) return () => {};
  const largest = Math.max(...g.rows.map((r) => r.norms[r.norms.length - 1] || 0), 1e-300);
  const spark = (values) => {
    const known = values.filter((v) => v > 0), low = Math.log10(Math.min(...known)), high = Math.log10(Math.max(...known));
    if (known.length < 2) return "";
    const at = values.map((v, i) => `${(i / (values.length - 1)) * 100} ${22 - (v > 0 && high > low ? ((Math.log10(v) - low) / (high - low)) * 20 : v > 0 ? 10 : 0)}`);
    const svg = element("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none" });
    svg.append(element("path", { d: `M${at.join("L")}`, fill: "none", stroke: "var(--backward)", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }));
    return svg;
  };
  const number = (x) => (x === null ? "none" : x === 0 ? "0" : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e4 ? String(Number(x.toPrecision(3))) : x.toExponential(1));
  const rows = g.rows.map((r) => {
    const last = r.norms[r.norms.length - 1];
    const width = last > 0 ? Math.max(2, 100 * Math.max(0, 1 + Math.log10(last / largest) / 6)) : 0;
    const notes = [r.dead ? r.dead === 1 ? "zero" : `zero in ${percent(r.dead)} of its units` : "", r.not_finite ? `${r.not_finite} not finite` : "", last === null ? "no gradient" : ""].filter(Boolean).join(", ");
    return element("tr", {}, element("td", { class: "mono" }, breakable(r.name), element("span", { class: "source" }, `(${r.shape.join(", ")})`),
        notes ? element("span", { class: "warned" }, notes) : null),
      element("td", { style: "min-width:7rem" }, element("span", { class: "track", style: "display:flex;height:.8rem" }, element("i", { style: `background:var(--gradient);width:${width}%` }))),
      element("td", {}, number(last)), element("td", {}, number(r.largest)), element("td", {}, number(r.weight)),
      element("td", {}, last === null || !r.weight ? "" : number(last / r.weight)), element("td", {}, spark(r.norms)));
  });
  const head = ["parameter", "", "‖gradient‖", "largest", "‖weight‖", "ratio", "over the steps"].map((t) => element("th", { scope: "col", style: "cursor:default" }, t));
  byId("gradients-table").append(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  byId("gradients-note").textContent = `Looked at before ${g.seen.length.toLocaleString("en")} of ${g.steps.toLocaleString("en")} steps; the numbers are of step ${g.seen[g.seen.length - 1].toLocaleString("en")}. Bars have a logarithmic scale of six decades.`;
  return () => {};
}

const sections = { summary: summarySection, timeline: timelineSection, flame: flameSection, memory: memorySection,
  tape: () => tapeSection(), gradients: gradientsSection, tables: tablesSection };

// ------------------------------------------------------------------------------------------------ start

function setTheme(name) { document.documentElement.dataset.theme = name; redraw(); }
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => setTheme(e.matches ? "dark" : "light"));
byId("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
for (const b of document.querySelectorAll("nav button")) {
  b.hidden = absent.has(b.dataset.to);
  b.addEventListener("click", () => show(b.dataset.to));
}
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 80); });
addEventListener("DOMContentLoaded", () => show(location.hash.slice(1) || "summary"));
