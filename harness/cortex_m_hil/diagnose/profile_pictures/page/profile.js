"use strict";
(() => {
const SVG = "http://www.w3.org/2000/svg";
const SHADES = 8; // of the legend
const LEGENDS = [["none", "the most that is shown"], ["none", "the most that is shown"], ["0", "255 quanta or more"], ["60 dB or more", "0 dB"]];

// Everything that is shown goes through here: as text, never as markup.
function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
const make = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");

function view(root, data) {
  const one = (selector) => root.querySelector(selector), all = (selector) => [...root.querySelectorAll(selector)];
  const lines = data.lines, rows = all("tbody tr[aria-level]"), table = one(".graph table"), edges = one(".edges");
  const along = one(".along"), pictures = all(".along .picture"), step = data.width / (data.count + 1);
  const lineOf = new Map(); // of an instruction, input or output
  lines.forEach((line, i) => { if (!line.module) lineOf.set(line.at[0], i); });
  let chosen = -1, mode = 0, dot = 0; // dot: where the edges of the graph end, in pixels from its left

  // --- the graph

  const isOpen = (i) => rows[i].getAttribute("aria-expanded") === "true";

  function show(i) { // opens all modules around a line
    for (let up = lines[i].parent; up >= 0; up = lines[up].parent) rows[up].setAttribute("aria-expanded", "true");
  }

  function layOut() {
    lines.forEach((line, i) => { rows[i].hidden = line.parent >= 0 && (rows[line.parent].hidden || !isOpen(line.parent)); });
    drawEdges();
  }

  function shownFor(i) { // the line itself, or the outermost closed module around it
    let found = i;
    for (let up = lines[i].parent; up >= 0; up = lines[up].parent) if (!isOpen(up)) found = up;
    return found;
  }

  // Of two ends that are `apart` dots from each other; pictures.py draws the same.
  const reach = (apart) => apart === 1 ? 0 : 8 * Math.log2(1 + Math.abs(apart));
  function arc(begin, end, apart) {
    const out = Math.round(dot - reach(apart));
    return apart === 1 ? `M${dot} ${begin}V${end}` : `M${dot} ${begin}C${out} ${begin} ${out} ${end} ${dot} ${end}`;
  }

  const paper = matchMedia("print"), PAGE = 600; // pixels of a low page

  function drawEdges() {
    const dots = lines.map((_, i) => i).filter((i) => !rows[i].hidden && !(lines[i].module && isOpen(i)));
    const order = new Map(dots.map((i, place) => [i, place]));
    const height = new Map(dots.map((i) => [i, rows[i].offsetTop + rows[i].offsetHeight / 2]));
    const ends = new Map(); // each pair of lines once
    for (const [from, to] of data.edges) {
      const begin = shownFor(lineOf.get(from)), end = shownFor(lineOf.get(to));
      if (begin !== end) ends.set(`${begin} ${end}`, [begin, end]);
    }
    const apart = ([begin, end]) => order.get(end) - order.get(begin);
    dot = Math.round(14 + Math.max(0, ...[...ends.values()].map(apart).map(reach)));
    edges.setAttribute("width", dot + 12);
    table.style.setProperty("--gutter", `${dot + 24}px`);
    const paths = [...ends.values()].map(([begin, end]) => drawn("path", {
      d: arc(height.get(begin), height.get(end), apart([begin, end])),
      class: begin === chosen || end === chosen ? "on" : "",
    }));
    const most = ["ticks", "planned"].map((key) => Math.max(1, ...dots.map((i) => lines[i][key])));
    const shade = (line) => [Math.max(0, line.ticks) / most[0], line.planned / most[1], ...line.shades][mode];
    const boxes = dots.flatMap((i) => {
      const box = { x: dot - 9, y: height.get(i) - 6, width: 18, height: 12, rx: lines[i].module ? 1 : 6 };
      const kind = lines[i].fault && mode > 1 ? "fault" : "";
      return [drawn("rect", { ...box, class: "back" }),
        drawn("rect", { ...box, class: kind, "fill-opacity": shade(lines[i]).toFixed(3) })];
    });
    edges.setAttribute("height", table.offsetHeight);
    edges.style.visibility = paper.matches && table.offsetHeight > PAGE ? "hidden" : ""; // a break moves rows alone
    edges.replaceChildren(...paths, ...boxes);
  }

  function setMode(value) {
    mode = Number(value);
    table.dataset.mode = mode;
    const [least, most] = LEGENDS[mode];
    const shades = Array.from({ length: SHADES + 1 }, (_, i) =>
      drawn("rect", { x: 1 + 11 * i, y: 1, width: 10, height: 10, "fill-opacity": i / SHADES }));
    one(".legend").replaceChildren(least, drawn("svg", { viewBox: "0 0 101 12", "aria-hidden": "true" }, ...shades), most);
    drawEdges();
  }

  // --- what is chosen

  function choose(i, { focus = false, scroll = false } = {}) {
    if (i === undefined || i < 0) return;
    if (chosen >= 0) { rows[chosen].tabIndex = -1; rows[chosen].setAttribute("aria-selected", "false"); }
    chosen = i;
    show(i);
    layOut();
    rows[i].tabIndex = 0;
    rows[i].setAttribute("aria-selected", "true");
    tell(lines[i]);
    if (focus) rows[i].focus({ preventScroll: !scroll });
    const box = one(".graph");
    if (scroll) one(".graph-and-facts").scrollIntoView({ block: "nearest" });
    if (scroll || focus) {
      const top = rows[i].offsetTop - one(".graph thead").offsetHeight, bottom = rows[i].offsetTop + rows[i].offsetHeight;
      if (top < box.scrollTop) box.scrollTop = top;
      if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    }
    mark(lines[i]);
  }

  function mark(line) {
    const at = line.at.map((index) => Math.max(-1, Math.min(data.count - 1, index)));
    const first = Math.min(...at), last = Math.max(...at);
    pictures.forEach((picture) => {
      let cursor = picture.querySelector(".cursor");
      if (!cursor) picture.append(cursor = drawn("rect", { class: "cursor", y: 0, height: picture.viewBox.baseVal.height }));
      cursor.setAttribute("x", data.left + (first + 1) * step);
      cursor.setAttribute("width", Math.max(1, (last - first + 1) * step));
    });
    const text = line.facts.filter(([label, , source]) => source || label === "name").map(([label, value]) =>
      label === "name" ? value : `${label} ${value}`).join(" · ");
    one(".readout").textContent = text;
    along.setAttribute("aria-valuenow", Math.max(0, first));
    along.setAttribute("aria-valuetext", text);
  }

  function tell(line) {
    const [[, name], ...facts] = line.facts;
    const list = make("dl", {});
    for (const [label, text, source] of facts) {
      list.append(make("dt", {}, label), make("dd", {}, text, ...(source ? [make("small", {}, ` ${source}`)] : [])));
    }
    const found = [make("h3", {}, name), list];
    const at = Math.max(-1, Math.min(data.count - 1, line.at[0]));
    const held = line.module ? [] : data.tensors.filter(([, , , first, last]) => first <= at && at <= last);
    if (held.length) {
      held.sort((a, b) => (b[2] - b[1]) - (a[2] - a[1]));
      found.push(make("h4", {}, "In the plan's memory"), make("ul", {}, ...held.map(([text, begin, end, first, last]) =>
        make("li", {}, `${number(end - begin)} bytes at ${number(begin)}: ${text}, from ${first < 0 ? "the inputs" : first} to ${last}`))));
    }
    one(".facts").replaceChildren(...found);
  }

  // --- keys and clicks

  function toggle(i, open) {
    rows[i].setAttribute("aria-expanded", String(open));
    layOut();
  }

  table.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr[aria-level]");
    if (!row || event.altKey || event.metaKey || event.ctrlKey) return;
    const i = rows.indexOf(row), visible = rows.filter((each) => !each.hidden), at = visible.indexOf(row);
    const to = (place) => choose(rows.indexOf(visible[Math.max(0, Math.min(visible.length - 1, place))]), { focus: true });
    const moves = {
      ArrowUp: () => to(at - 1), ArrowDown: () => to(at + 1), PageUp: () => to(at - 15), PageDown: () => to(at + 15),
      Home: () => to(0), End: () => to(visible.length - 1),
      ArrowRight: () => lines[i].module && !isOpen(i) ? toggle(i, true) : to(at + 1),
      ArrowLeft: () => lines[i].module && isOpen(i) ? toggle(i, false) : choose(lines[i].parent, { focus: true }),
      Enter: () => lines[i].module ? toggle(i, !isOpen(i)) : choose(i, { focus: true }),
    };
    if (!moves[event.key]) return;
    moves[event.key]();
    event.preventDefault();
  });

  table.addEventListener("click", (event) => {
    const row = event.target.closest("tr[aria-level]");
    if (!row) return;
    const i = rows.indexOf(row);
    if (lines[i].module && event.target.closest(".name")) toggle(i, !isOpen(i));
    choose(i, { focus: true });
  });

  const current = () => chosen < 0 ? 0 : Math.max(-1, Math.min(data.count, lines[chosen].at[0]));
  const goTo = (index) => choose(lineOf.get(Math.max(0, Math.min(data.count - 1, index))), { scroll: true });

  along.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: () => current() + 1, ArrowUp: () => current() + 1, ArrowLeft: () => current() - 1,
      ArrowDown: () => current() - 1, PageUp: () => current() + 10, PageDown: () => current() - 10, Home: () => 0,
      End: () => data.count - 1 };
    if (!moves[event.key] || event.altKey || event.metaKey || event.ctrlKey) return;
    goTo(moves[event.key]());
    event.preventDefault();
  });

  along.addEventListener("click", (event) => {
    const picture = event.target.closest(".picture");
    if (!picture) return;
    const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) * picture.viewBox.baseVal.width / box.width;
    goTo(Math.floor((x - data.left) / step) - 1);
  });

  root.addEventListener("click", (event) => {
    const answer = event.target.closest("[data-line]"), part = event.target.closest(".flash [data-at]");
    if (answer) choose(Number(answer.dataset.line), { focus: true, scroll: true });
    if (part) choose(lineOf.get(Number(part.dataset.at)), { scroll: true });
    const of_all = event.target.closest(".all");
    if (of_all) {
      lines.forEach((line, i) => { if (line.module) rows[i].setAttribute("aria-expanded", of_all.dataset.open); });
      if (chosen >= 0 && of_all.dataset.open === "false") choose(shownFor(chosen));
      layOut();
    }
  });
  for (const radio of all(".modes input")) radio.addEventListener("change", () => setMode(radio.value));
  addEventListener("resize", drawEdges);
  paper.addEventListener("change", drawEdges); // rows are lower there
  if (rows.length) { rows[0].tabIndex = 0; }
  setMode(0);
  return { draw: layOut };
}

const data = JSON.parse(document.getElementById("data").textContent);
const roots = [...document.querySelectorAll(".view")], views = roots.map((root, i) => view(root, data[i]));
const tabs = [...document.querySelectorAll(".tabs a")];
function showView() { // the one that the address names, else the first
  const to = Math.max(0, tabs.findIndex((tab) => tab.hash === location.hash));
  roots.forEach((root, i) => { root.hidden = i !== to; });
  tabs.forEach((tab, i) => { if (i === to) tab.setAttribute("aria-current", "true"); else tab.removeAttribute("aria-current"); });
  views[to].draw();
}
addEventListener("hashchange", showView);
showView();
})();
