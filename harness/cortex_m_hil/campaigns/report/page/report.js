"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const name = (number) => data.names[number];
const byId = (id) => document.getElementById(id);

// Everything that is shown goes through here: as text, never as markup.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]);
const number = (value) => typeof value === "number" ? // with the digits in which small figures differ
  value.toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 6 }).replaceAll(",", "\u202f") : String(value);

// --- trends

const ROWS = 60; // at once
const LAYERS = "layers";
const HIGHER_IS_BETTER = ["sqnr_db", "cortex_m_macs", "cortex_m_operators"];
const TIMES = ["instructions", "cycles", "model_ticks"];
const LOOSE = ["cycles", "model_ticks", "stack_bytes"]; // differ between runs of the same code
const MEANT = { slower: "more", faster: "fewer" }; // of what is counted
const meant = (kind, figure) => kind in MEANT ? `${kind} (${MEANT[kind]} ${figure})` : `${kind} ${figure}`.trim();
// The kinds of steps, those for the worse first, and for each its opposite.
const KINDS = [["slower", "faster"], ["larger", "smaller"], ["less on Cortex-M kernels", "more on Cortex-M kernels"], ["less accurate", "more accurate"]];
const isShare = (figure) => figure.startsWith("cortex_m_"), isLogarithm = (figure) => figure.endsWith("_db");
// A figure as it is shown: with its unit where its name has none.
const valued = (figure, value) => value === null || value === undefined ? "–" : typeof value !== "number" ? String(value) :
  isShare(figure) ? `${number(100 * value)} %` : isLogarithm(figure) ? `${number(value)} dB` : number(value);
const kindOf = (figure) => TIMES.includes(figure) ? 0 : figure.endsWith("_bytes") ? 1 : isShare(figure) ? 2 : 3;
const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const day = (night) => data.nights[night].split(", ")[0];
const decoded = (runs) => pairs(runs).flatMap(([value, often]) => Array(often).fill(value));
const known = (values) => values.filter((value) => value !== null);
const moved = (values) => new Set(known(values)).size > 1;

const across = (i, values) => 4 + 292 * i / Math.max(1, values.length - 1);

// A line of steps, in a box of 300 × 80; what was not measured leaves a gap.
function line(values) {
  const least = Math.min(...known(values)), most = Math.max(...known(values));
  const x = (i) => across(i, values);
  const y = (value) => most === least ? 40 : 74 - 68 * (value - least) / (most - least);
  let path = "", open = false;
  values.forEach((value, i) => {
    if (value === null) { open = false; return; }
    path += open ? `H${x(i).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(i).toFixed(1)} ${y(value).toFixed(1)}h.5`;
    open = true;
  });
  return path;
}

// Figures from night to night; a dotted line marks the night `since`, unless that is the first.
function picture(kind, values, said, since = 0) {
  const at = across(since, values);
  return drawn("svg", { class: kind, viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": said },
    ...(since ? [drawn("line", { x1: at, x2: at, y1: 0, y2: 80 })] : []), drawn("path", { d: line(values) }));
}
const latest = (values) => values[values.length - 1]; // null where it was not measured: an old one is no figure of now
const said = (values) => `from ${number(known(values)[0])} to ${number(latest(values) ?? "–")}, between ` +
  `${number(Math.min(...known(values)))} and ${number(Math.max(...known(values)))}`;

// How far a figure moved; in percent of what it was, unless it is a logarithm or a share.
function change(figure, before, after) {
  const by = Number((after - before).toPrecision(6)), sign = by > 0 ? "+" : "";
  if (isLogarithm(figure)) return [`${sign}${number(by)} dB`];
  if (isShare(figure)) return [`${sign}${number(100 * by)} percentage points`];
  const share = before ? 100 * (after - before) / Math.abs(before) : NaN;
  const digits = Math.min(20, Math.max(2, -Math.floor(Math.log10(Math.abs(share)))));
  const percent = Number.isFinite(share) && share ? [`${share > 0 ? "+" : ""}${Number(share.toFixed(digits))} %`] : [];
  return [`${sign}${number(by)}`, ...percent];
}

// What of a figure moved from one night to a later one: each operator or bank, the largest difference first, and before
// it what moved as the figure did.
function causes(one, from, to, parts = one.parts) {
  const differences = parts.map(([part, values]) => [part, (values[to] ?? 0) - (values[from] ?? 0), values[from] ?? values[to]])
    .filter(([, by, there]) => by && there !== null);
  const less = one.values[to] < one.values[from], against = ([, by]) => (by < 0) !== less;
  return differences.sort((a, b) => against(a) - against(b) || Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3).map(([part, by]) => `${part} ${by > 0 ? "+" : ""}${number(by)}`);
}

// The operator in its module that moved most, as text; none where the nights do not have it.
const layer = (one, from, to) => causes(one, from, to, one.layers).slice(0, 1).map((text) => `most by ${text}`);

function large(one) {
  const { values, since } = one, seen = known(values);
  const spans = (of, texts) => make("div", { class: of }, ...texts.map((text) => make("span", {}, text)));
  const range = [...new Set([Math.max(...seen), Math.min(...seen)])].map(number);
  const days = [day(0), ...(since ? [`┊ since ${day(since)}`] : []), day(values.length - 1)];
  const steps = [];
  let before = null, at = 0;
  values.forEach((value, i) => {
    if (value === null || value === before) return;
    const told = before === null ? ["start", ""] : [change(one.figure, before, value).join(", "), [...causes(one, at, i), ...layer(one, at, i)].join(", ")];
    steps.unshift(make("tr", {}, make("td", {}, data.nights[i]), make("td", { class: "number" }, valued(one.figure, value)), ...told.map((text) => make("td", {}, text))));
    [before, at] = [value, i];
  });
  const heads = ["night", one.figure, "change", "by operator, layer or bank"].map((text) => make("th", { scope: "col" }, text));
  const caption = since === undefined ? [] : [make("figcaption", {}, one.title)];
  return [make("figure", {}, ...caption, spans("range", range), picture("chart", values, `${one.title}: ${said(values)}`, since), spans("days", days)),
    make("div", { class: "scroll" }, make("table", { class: "steps" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...steps)))];
}

// A row with a small picture, which opens to the large one.
function trend(one, cells, more = []) {
  const found = make("details", { class: "trend" }, make("summary", {}, picture("spark", one.values, said(one.values), one.since), ...cells));
  found.addEventListener("toggle", () => {
    if (found.open && found.children.length === 1) found.append(...large(one), ...more);
  });
  return found;
}

const partsOf = (cell, figure) => pairs(pairs(cell.moved || []).find(([of]) => name(of) === figure)?.[1] || [])
  .map(([part, of]) => [name(part), decoded(of)]);
const trendOf = (cell, figure) => pairs(cell.trends || []).filter(([of]) => name(of) === figure).flatMap(([, runs]) => decoded(runs));
const series = (cell) => pairs(cell.trends || []).map(([figure, runs]) => ({
  cell, test: name(cell.test), target: name(cell.target), runtime: name(cell.runtime), figure: name(figure), values: decoded(runs),
  loaded: name(figure) === "elf_bytes" ? trendOf(cell, "elf_stored_bytes") : [],
  title: `${name(figure)}, ${name(cell.test)} [${name(cell.target)}, ${name(cell.runtime)}]`,
  parts: partsOf(cell, name(figure)), layers: name(figure) === "instructions" ? partsOf(cell, LAYERS) : [],
}));

// How far a figure moved, relative to what it was; decibels by the ratio that they stand for.
const share = (figure, before, after) => isLogarithm(figure) ? Math.expm1(Math.abs(after - before) * Math.LN10 / 10) :
  Math.abs((after - before) / (before || 1));

// From the last night up to the asked one that has the figure, to the last night; with the nights in which it moved.
function step(one, since) {
  let from = since;
  while (from > 0 && one.values[from] === null) from -= 1;
  const before = one.values[from], after = latest(one.values);
  const loaded = latest(one.loaded) - one.loaded[from]; // an ELF has debug information: only with these bytes is it larger
  const there = typeof before === "number" && typeof after === "number" && before !== after && !(loaded * (after - before) <= 0);
  const worse = there && (after > before) !== HIGHER_IS_BETTER.includes(one.figure);
  const by = there ? causes(one, from, one.values.length - 1) : [], most = there ? layer(one, from, one.values.length - 1) : [];
  let value = before;
  const nights = there ? one.values.flatMap((now, i) => {
    if (i <= from || now === null || now === value) return [];
    const told = { night: i, size: Math.abs(now - value), by: change(one.figure, value, now)[0] };
    value = now;
    return [told];
  }) : [];
  nights.sort((a, b) => b.size - a.size);
  const kind = there ? KINDS[kindOf(one.figure)][worse ? 0 : 1] : "";
  return { ...one, since, before, after, there, worse, kind, by, most, nights, share: there ? share(one.figure, before, after) : 0 };
}

// Steps with the same cause are one: of one figure, for the worse or the better, most of it by the same operator or bank.
function grouped(steps) {
  const found = new Map();
  for (const one of steps) {
    const cause = one.by.length ? one.by[0].slice(0, one.by[0].lastIndexOf(" ")) : [one.test, one.before, one.after];
    const key = JSON.stringify([one.figure, one.runtime, one.worse, one.there, one.there ? cause : [one.test, one.target]]);
    found.set(key, [...(found.get(key) || []), one]);
  }
  const groups = [...found.values()].map((of) => of.sort((a, b) => b.share - a.share));
  return groups.sort(([a], [b]) => b.worse - a.worse || b.there - a.there || kindOf(a.figure) - kindOf(b.figure) || b.share - a.share);
}

const where = (targets, runtime) => `${targets.join(", ")}${runtime === "builtin" ? "" : `; ${runtime}`}`;
const differences = (one) => one.there ? change(one.figure, one.before, one.after).join(", ") : "";
const told = (one) => one.there ? `${valued(one.figure, one.before)} → ${valued(one.figure, one.after)}` : valued(one.figure, one.after);

// The steps of other tests, each test with all targets on which its values are the same.
function listed(steps) {
  const found = new Map();
  for (const one of steps) {
    const key = JSON.stringify([one.test, one.before, one.after]);
    found.set(key, [...(found.get(key) || []), one]);
  }
  const items = [...found.values()].map((of) => make("li", {}, `${of[0].test} [${where(of.map(({ target }) => target), of[0].runtime)}] ` +
    `${told(of[0])}: ${differences(of[0])}`));
  const left = items.length - ROWS;
  return make("details", {}, make("summary", {}, `${counted(steps.length, "more result")} with this cause`),
    make("ul", {}, ...items.slice(0, ROWS), ...(left > 0 ? [make("li", {}, `and ${counted(left, "more test")}`)] : [])));
}

// The steps of each target.
function onTargets(steps) {
  const found = new Map();
  for (const one of steps) found.set(one.target, [...(found.get(one.target) || []), one]);
  return [...found.values()];
}

// A line for each target: the result that moved most, and how far, or how far the results moved at most.
function byTarget(steps) {
  const lines = onTargets(steps).flatMap((of) => {
    const same = new Set(of.map(differences)).size === 1;
    return [where([of[0].target], of[0].runtime), told(of[0]), same ? differences(of[0]) : `up to ${change(of[0].figure, of[0].before, of[0].after).pop()}`];
  });
  return make("span", { class: "by-target" }, ...lines.map((text, i) =>
    make("span", { class: i % 3 === 2 ? steps[0].worse ? "worse" : "better" : "" }, text)));
}

// When the figures of a group moved: the night, or the steps of the one that moved most, the largest first.
function when(steps) {
  const [{ nights }, ...others] = steps, own = new Set(nights.map(({ night }) => night));
  const further = [...new Set(others.flatMap(({ nights }) => nights.map(({ night }) => night)))].filter((night) => !own.has(night));
  if (nights.length === 1 && !further.length) return data.nights[nights[0].night];
  const listed = nights.slice(0, 3).map(({ night, by }) => `${day(night)} ${by}`);
  return [...listed, ...(nights.length > 3 || further.length ? ["…"] : [])].join(", ");
}

// What of the figure moved: one line for all targets, or one for each.
function byPart(steps) {
  const lines = onTargets(steps).map(([one]) => [one.target, [...(one.by.length ? [one.by.join(", ")] : []), ...one.most].join("; ")]);
  const same = new Set(lines.map(([, text]) => text)).size === 1;
  return (same ? lines.slice(0, 1) : lines).filter(([, text]) => text).map(([target, text]) => make("div", {}, ...(same ? [] : [`${target}: `]), make("strong", {}, text)));
}

function stepRow(steps) {
  const [one, ...others] = steps;
  const tests = new Set(steps.map(({ test }) => test)).size - 1;
  const cells = [make("span", {}, one.kind ? make("strong", { class: one.worse ? "worse" : "better" }, meant(one.kind, one.figure)) : one.figure),
    byTarget(steps), make("span", {}, when(steps)),
    make("span", {}, ...byPart(steps), one.test + (tests ? ` and ${counted(tests, "more test")}` : ""))];
  return trend(one, cells, others.length ? [listed(others)] : []);
}

const resultsOf = (steps) => new Set(steps.map(({ cell }) => cell)).size;

// The rows below a heading for each group: for the worse, for the better, and what has not moved.
function sections(groups) {
  const shown = groups.slice(0, ROWS);
  const of = [["For the worse", (one) => one.worse], ["For the better", (one) => one.there && !one.worse], ["The same", (one) => !one.there]];
  return of.flatMap(([title, has]) => {
    const found = groups.filter(([one]) => has(one)), rows = shown.filter(([one]) => has(one));
    const kinds = KINDS.flat().map((kind) => [kind, found.filter(([one]) => one.kind === kind)]).filter(([, of]) => of.length);
    const told = kinds.map(([kind, of]) => `${counted(resultsOf(of.flat()), "result")} ${kind} in ${counted(of.length, "row")}`).join(", ") ||
      counted(found.length, "row");
    return rows.length ? [make("h3", {}, `${title}: ${told}`), ...rows.map(stepRow)] : [];
  });
}

function heads() {
  const spans = (of, ...texts) => make("span", { class: of }, ...texts.map((text) => make("span", {}, text)));
  return make("div", { class: "trend-heads" }, ...["", "trend", "figure"].map((text) => make("span", {}, text)),
    spans("by-target", "target", "before → after", "change"), ...["when it moved", "by operator, layer or bank, and tests"].map((text) => make("span", {}, text)));
}

// Adds to a tile how many results moved since an earlier night, where these are more.
function setUpTiles(every, since, reset) {
  const found = every.map((one) => step(one, since)).filter(({ there, figure }) => there && !LOOSE.includes(figure));
  for (const [kind, worse] of KINDS.flatMap(([bad, good]) => [[bad, true], [good, false]])) {
    const tile = document.querySelector(`.tiles [data-kind="changes-${kind.replaceAll(" ", "_")}"]`);
    if (!tile) continue;
    const count = resultsOf(found.filter((one) => one.kind === kind));
    if (count <= Number(tile.querySelector("b").textContent)) continue;
    const link = make("a", { href: "#trends", class: worse ? "earlier warns" : "earlier" }, `${counted(count, "result")} since `, make("span", { class: "number" }, day(since)));
    link.addEventListener("click", () => reset(kind));
    tile.append(link);
  }
}

function setUpTrends() {
  if (!byId("charts")) return;
  const every = data.cells.flatMap(series);
  for (const [id, key] of [["trend-target", "target"], ["trend-figure", "figure"]]) {
    const values = [...new Set(every.map((one) => one[key]))].sort();
    byId(id).append(...values.map((value) => make("option", { value }, value)));
  }
  const week = Math.min(data.since, data.nights.length - 2);
  const marks = new Map([[week, " (first of a week)"], [data.against, " (compared with above)"]]);
  byId("trend-since").append(...data.nights.slice(0, -1).map((night, i) => make("option", { value: i }, night + (marks.get(i) || ""))));
  byId("trend-kind").append(...KINDS.flat().map((value) => make("option", { value }, value)));
  const reset = (kind = "") => {
    for (const id of ["trend-text", "trend-target", "trend-figure"]) byId(id).value = "";
    byId("trend-since").value = week;
    byId("trend-kind").value = kind;
    byId("trend-moved").checked = true;
    show();
  };
  const show = () => {
    const text = byId("trend-text").value.toLowerCase(), since = Number(byId("trend-since").value);
    const target = byId("trend-target").value, figure = byId("trend-figure").value, only = byId("trend-moved").checked;
    const asked = every.filter((one) => one.test.toLowerCase().includes(text) && (!target || one.target === target) &&
      (!figure || one.figure === figure)).map((one) => step(one, since));
    const kind = byId("trend-kind").value;
    const moved = asked.filter((one) => one.there && (!kind || one.kind === kind)), groups = grouped(only || kind ? moved : asked);
    byId("charts").replaceChildren(...(groups.length ? [heads()] : []), ...sections(groups));
    const hidden = groups.length > ROWS ? `; the first ${ROWS} of ${groups.length} rows are shown` : "";
    byId("trend-shown").textContent = `Since ${data.nights[since]}: ${resultsOf(moved)} of ${counted(resultsOf(asked), "result")} ` +
      `${kind || "moved"}, in ${moved.length} of ${counted(asked.length, "figure")}${hidden}`;
  };
  for (const id of ["trend-since", "trend-text", "trend-target", "trend-figure", "trend-kind", "trend-moved"]) byId(id).addEventListener("input", show);
  reset();
  setUpTiles(every, week, reset);
}

// The small pictures in the table of what changed; each opens the large one.
function setUpSparks() {
  for (const place of document.querySelectorAll("[data-spark]")) {
    const one = series(data.cells[Number(place.dataset.spark)]).find(({ figure }) => figure === place.dataset.figure);
    if (!one || !moved(one.values)) continue;
    const button = make("button", { type: "button", class: "spark", "aria-label": `trend of ${one.title}` }, picture("spark", one.values, said(one.values)));
    button.addEventListener("click", () => show(one.title, large(one)));
    place.append(button);
  }
}

// --- a cell

function bars(rows, head) {
  const most = Math.max(1, ...rows.map(([, value]) => value));
  const all = rows.reduce((sum, [, value]) => sum + value, 0);
  const lines = rows.map(([label, value]) => make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, number(value),
    drawn("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      drawn("rect", { width: 100 * value / most, height: 6 }))), make("td", {}, `${(100 * value / Math.max(1, all)).toFixed(1)} %`)));
  const titles = head.map((text) => make("th", { scope: "col" }, text));
  return make("table", { class: "totals" }, make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...lines));
}

const BY = { pte_bytes: "section", elf_stored_bytes: "section", planned_bytes: "bank" }; // others have parts by operator
const OFF = { max_quanta: "the dialect, or what is expected", fake_quant_quanta: "fake-quant" };

function parts(cell) {
  return pairs(cell.parts || []).flatMap(([figure, flat]) => {
    const rows = pairs(flat).map(([label, value]) => [name(label), value]);
    const what = name(figure);
    if (OFF[what]) {
      return [make("h3", {}, `Quanta from ${OFF[what]}`), bars(rows, ["quanta", "elements", "share"])];
    }
    rows.sort((a, b) => b[1] - a[1]);
    if (what === "planned_peak") {
      return [make("h3", {}, "Planned bytes held at each bank's peak"), bars(rows, ["bank: operator that runs then", "bytes", "share"])];
    }
    const part = BY[what] || "operator";
    return [make("h3", {}, `${what} by ${part}`), bars(rows, [part, what, "share"])];
  });
}

function executed(cell) {
  const flat = cell.executed || [];
  const rows = Array.from({ length: flat.length / 3 }, (_, i) => flat.slice(3 * i, 3 * i + 3)).map(([file, lines, all]) =>
    make("tr", {}, make("th", { scope: "row" }, name(file)), make("td", {}, `${lines} of ${all}`)));
  const heads = ["file", "lines executed"].map((text) => make("th", { scope: "col" }, text));
  const all = make("a", { href: "#coverage" }, "by all tests");
  all.addEventListener("click", () => byId("cell").close());
  return rows.length ? [make("h3", {}, "Lines of the kernels that it executed"),
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)), make("p", {}, all)] : [];
}

function facts(cell) {
  const found = [["verdict", name(cell.ending)], ["said", cell.headline], ["ran", name(cell.ran)], ["on", name(cell.engine)],
    ["runtime", name(cell.runtime)], ["suite", name(cell.suite)], ["took", `${cell.seconds} s`],
    ["attempts before", (cell.earlier || []).join(", ")]];
  const list = make("dl", { class: "facts" });
  for (const [term, text] of found) if (text) list.append(make("dt", {}, term), make("dd", {}, text));
  if (cell.command) list.append(make("dt", {}, "run it again"), make("dd", {}, make("code", {}, cell.command)));
  if (cell.bundle) {
    const address = cell.bundle.split("/").map(encodeURIComponent).join("/");
    list.append(make("dt", {}, "bundle"), make("dd", {}, make("a", { href: address }, cell.bundle)));
  }
  return list;
}

function opened(cell) {
  const found = [facts(cell)];
  const add = (heading, ...content) => found.push(make("h3", {}, heading), ...content);
  if (cell.changes) add("What changed", make("ul", {}, ...cell.changes.map((text) => make("li", {}, text))));
  const figures = pairs(cell.figures || []);
  if (figures.length) {
    add("Figures", make("table", {}, make("tbody", {}, ...figures.map(([figure, values]) =>
      make("tr", {}, make("th", { scope: "row" }, name(figure)), make("td", {}, values.map((value) => valued(name(figure), value)).join(", ")))))));
  }
  found.push(...parts(cell), ...executed(cell));
  if (cell.localized) add("Where it departs", make("pre", { class: "aligned", tabindex: "0" }, cell.localized));
  if (cell.log) add("Log", make("pre", { tabindex: "0" }, cell.log));
  const each = series(cell);
  if (each.length) add("Trends", ...each.map((one) => trend(one, [make("span", {}, one.figure), make("span", {}, valued(one.figure, latest(one.values)))])));
  return found;
}

function show(title, content) {
  const dialog = byId("cell");
  const close = make("button", { type: "button", class: "close" }, "close");
  close.addEventListener("click", () => dialog.close());
  dialog.replaceChildren(close, make("h2", { id: "cell-title" }, title), ...content);
  dialog.showModal();
  dialog.scrollTop = 0;
}

function open(index) {
  const cell = data.cells[index];
  show([name(cell.test), name(cell.target), name(cell.runtime)].filter(Boolean).join(" · "), opened(cell));
}

// --- the matrix

const matrix = byId("matrix");
const files = [...matrix.querySelectorAll("tr.file")].map((head) => ({ head, rows: [...head.parentElement.querySelectorAll("tr.test")] }));
const rows = files.flatMap(({ head, rows }) => [head, ...rows]);
const cellsOf = (row) => [...row.querySelectorAll("td")];

function select(cell, focus = true) {
  if (!cell) return;
  for (const one of matrix.querySelectorAll('td[tabindex="0"]')) one.tabIndex = -1;
  cell.tabIndex = 0;
  if (focus) cell.focus();
}

function move(cell, key, far) {
  const visible = rows.filter((row) => !row.hidden);
  const at = visible.indexOf(cell.parentElement), here = cellsOf(cell.parentElement), column = here.indexOf(cell);
  const row = (index) => cellsOf(visible[Math.max(0, Math.min(visible.length - 1, index))]);
  const moves = {
    ArrowUp: () => row(at - 1)[column], ArrowDown: () => row(at + 1)[column],
    PageUp: () => row(at - 10)[column], PageDown: () => row(at + 10)[column],
    ArrowLeft: () => here[Math.max(0, column - 1)], ArrowRight: () => here[Math.min(here.length - 1, column + 1)],
    Home: () => far ? row(0)[0] : here[0], End: () => far ? row(visible.length - 1)[here.length - 1] : here[here.length - 1],
  };
  return moves[key] && moves[key]();
}

matrix.addEventListener("keydown", (event) => {
  const cell = event.target.closest("td");
  if (!cell || event.altKey || event.metaKey) return;
  const to = move(cell, event.key, event.ctrlKey);
  const file = files.find(({ head }) => head === cell.parentElement);
  const opens = (event.key === "Enter" || event.key === " ") && (file || cell.dataset.cell !== undefined);
  if (to) select(to);
  if (opens && file) fold(file, file.open);
  else if (opens) open(Number(cell.dataset.cell));
  if (to || opens) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const file = files.find(({ head }) => head.contains(event.target));
  if (file) fold(file, file.open);
  const from = event.target.closest("[data-cell]");
  if (!from) return;
  if (matrix.contains(from)) select(from);
  open(Number(from.dataset.cell));
});

// --- the filter

const tests = files.flatMap(({ rows }) => rows);
for (const file of files) {
  const path = file.head.cells[0].firstChild.data.trim();
  file.texts = file.rows.map((row) => `${path}::${row.textContent}`.toLowerCase()); // as in pytest's ids
  file.notable = file.rows.map((row) => row.querySelector(".bad, .changed") !== null);
}

// Shows or hides a file's tests, of these only what the filter lets through.
function fold(file, folded) {
  file.open = !folded;
  file.head.setAttribute("aria-expanded", String(file.open));
  file.rows.forEach((row, i) => { row.hidden = folded || !file.found[i]; });
}

function filter() {
  const text = byId("text").value.toLowerCase(), only = byId("notable").checked;
  for (const file of files) {
    file.found = file.texts.map((each, i) => each.includes(text) && (!only || file.notable[i]));
    file.head.hidden = !file.found.some(Boolean);
    fold(file, !(text || only));
  }
  const found = files.flatMap((file) => file.found).filter(Boolean).length;
  byId("shown").textContent = `${found} of ${tests.length} tests`;
  const current = matrix.querySelector('td[tabindex="0"]'), visible = rows.filter((row) => !row.hidden);
  if ((!current || current.parentElement.hidden) && visible.length) select(cellsOf(visible[0])[0], false);
}

for (const id of ["text", "notable"]) byId(id).addEventListener("input", filter);
filter();
setUpTrends();
setUpSparks();
})();
