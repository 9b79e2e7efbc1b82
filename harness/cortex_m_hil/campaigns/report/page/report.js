"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const CHARTS = 24; // at once
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
const number = (value) => typeof value === "number" ? value.toLocaleString("en").replaceAll(",", "\u202f") : String(value);

// --- charts

const decoded = (runs) => pairs(runs).flatMap(([value, often]) => Array(often).fill(value));

function chart(title, runs) {
  const values = decoded(runs);
  const known = values.filter((value) => value !== null);
  const least = Math.min(...known), most = Math.max(...known);
  const x = (i) => 4 + 292 * i / Math.max(1, values.length - 1);
  const y = (value) => most === least ? 40 : 74 - 68 * (value - least) / (most - least);
  let path = "", open = false;
  values.forEach((value, i) => {
    if (value === null) { open = false; return; }
    path += open ? `H${x(i).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(i).toFixed(1)} ${y(value).toFixed(1)}h.5`;
    open = true;
  });
  const last = values[values.length - 1] ?? "–"; // what was not measured has no figure, and not an old one
  const said = `${title}: from ${number(known[0])} to ${number(last)}, between ${number(least)} and ${number(most)}`;
  const steps = [];
  let at = 0;
  for (const [value, often] of pairs(runs)) {
    if (value !== null) steps.push(`${data.nights[at]}: ${number(value)}`);
    at += often;
  }
  const picture = drawn("svg", { class: "chart", viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": said },
    drawn("title", {}, steps.slice(-12).join("\n")), drawn("path", { d: path }));
  const ends = make("div", { class: "ends" }, make("span", {}, `least ${number(least)}`), make("span", {}, `most ${number(most)}`),
    make("span", {}, `now ${number(last)}`));
  return make("figure", {}, make("figcaption", {}, title), picture, ends);
}

const moved = (runs) => new Set(pairs(runs).map(([value]) => value).filter((value) => value !== null)).size > 1;

function setUpTrends() {
  if (!byId("charts")) return;
  const series = data.cells.flatMap((cell) => pairs(cell.trends || []).map(([figure, runs]) => ({
    test: name(cell.test), target: name(cell.target), runtime: name(cell.runtime), figure: name(figure), runs, moved: moved(runs),
    since: runs[runs.length - 1],
  })));
  series.sort((a, b) => a.since - b.since);
  for (const [id, key] of [["trend-target", "target"], ["trend-figure", "figure"]]) {
    const values = [...new Set(series.map((one) => one[key]))].sort();
    byId(id).append(...values.map((value) => make("option", { value }, value)));
  }
  const show = () => {
    const text = byId("trend-text").value.toLowerCase();
    const target = byId("trend-target").value, figure = byId("trend-figure").value, only = byId("trend-moved").checked;
    const found = series.filter((one) => one.test.toLowerCase().includes(text) && (!target || one.target === target) &&
      (!figure || one.figure === figure) && (!only || one.moved));
    byId("charts").replaceChildren(...found.slice(0, CHARTS).map((one) =>
      chart(`${one.figure}, ${one.test} [${one.target}, ${one.runtime}]`, one.runs)));
    const hidden = found.length > CHARTS ? `, the ${CHARTS} that moved last are shown` : "";
    byId("trend-shown").textContent = `${found.length} of ${series.length} figures${hidden}`;
  };
  for (const id of ["trend-text", "trend-target", "trend-figure", "trend-moved"]) byId(id).addEventListener("input", show);
  show();
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

const OF_SECTIONS = ["pte_bytes", "elf_stored_bytes"]; // other figures have parts by operator
const OFF = { max_quanta: "the dialect, or what is expected", fake_quant_quanta: "fake-quant" };

function parts(cell) {
  return pairs(cell.parts || []).flatMap(([figure, flat]) => {
    const rows = pairs(flat).map(([label, value]) => [name(label), value]);
    const what = name(figure);
    if (OFF[what]) {
      return [make("h3", {}, `Quanta from ${OFF[what]}`), bars(rows, ["quanta", "elements", "share"])];
    }
    rows.sort((a, b) => b[1] - a[1]);
    const part = OF_SECTIONS.includes(what) ? "section" : "operator";
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
  const title = [name(cell.test), name(cell.target), name(cell.runtime)].filter(Boolean).join(" · ");
  const close = make("button", { type: "button", class: "close" }, "close");
  close.addEventListener("click", () => byId("cell").close());
  const found = [close, make("h2", { id: "cell-title" }, title), facts(cell)];
  const add = (heading, ...content) => found.push(make("h3", {}, heading), ...content);
  if (cell.changes) add("What changed", make("ul", {}, ...cell.changes.map((text) => make("li", {}, text))));
  const figures = pairs(cell.figures || []);
  if (figures.length) {
    add("Figures", make("table", {}, make("tbody", {}, ...figures.map(([figure, values]) =>
      make("tr", {}, make("th", { scope: "row" }, name(figure)), make("td", {}, values.map(number).join(", ")))))));
  }
  found.push(...parts(cell), ...executed(cell));
  if (cell.localized) add("Where it departs", make("pre", { class: "aligned", tabindex: "0" }, cell.localized));
  if (cell.log) add("Log", make("pre", { tabindex: "0" }, cell.log));
  const series = pairs(cell.trends || []);
  if (series.length) add("Trends", make("div", { class: "charts" }, ...series.map(([figure, runs]) => chart(name(figure), runs))));
  return found;
}

function open(index) {
  const dialog = byId("cell");
  dialog.replaceChildren(...opened(data.cells[index]));
  dialog.showModal();
  dialog.scrollTop = 0;
}

// --- the matrix

const matrix = byId("matrix");
const rows = [...matrix.querySelectorAll("tbody tr:not(.suite)")];
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
  const opens = (event.key === "Enter" || event.key === " ") && cell.dataset.cell !== undefined;
  if (to) select(to);
  if (opens) open(Number(cell.dataset.cell));
  if (to || opens) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const from = event.target.closest("[data-cell]");
  if (!from) return;
  if (matrix.contains(from)) select(from);
  open(Number(from.dataset.cell));
});

// --- the filter

const texts = rows.map((row) => row.textContent.toLowerCase());
const notable = rows.map((row) => row.querySelector(".bad, .changed") !== null);

function filter() {
  const text = byId("text").value.toLowerCase(), only = byId("notable").checked;
  rows.forEach((row, i) => { row.hidden = !texts[i].includes(text) || (only && !notable[i]); });
  const visible = rows.filter((row) => !row.hidden);
  byId("shown").textContent = `${visible.length} of ${rows.length} tests`;
  const current = matrix.querySelector('td[tabindex="0"]');
  if ((!current || current.parentElement.hidden) && visible.length) select(cellsOf(visible[0])[0], false);
}

for (const id of ["text", "notable"]) byId(id).addEventListener("input", filter);
filter();
setUpTrends();
})();
