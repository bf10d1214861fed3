// Peak over the shapes: a map over two symbols, or a curve over one, the others as they are set.

import { stops } from "./controls.js";
import { axis, showTip } from "./timeline.js";
import { bytes, count, drawn, element, roundBytes, versionText } from "./words.js";

const [ACROSS, DOWN] = [44, 26]; // cells
const HEIGHT = 330;
const MARGIN = { left: 78, right: 14, top: 12, bottom: 44 };

export class ShapeMap {
  constructor(place, model, controls, changed) {
    Object.assign(this, { model, controls, place });
    const names = controls.dials.map((dial) => dial.range).filter((r) => r.hi === null || r.lo < r.hi).map((r) => r.name);
    this.names = names;
    const pick = (label, value) => {
      const options = names.map((name) => element("option", { value: name, text: name, selected: name === value }));
      const select = element("select", { onchange: () => changed() }, ...options);
      return [element("label", {}, `${label} `, select), select];
    };
    this.legend = element("p", { class: "legend" });
    this.words = element("p", { class: "note", role: "status" });
    this.svg = drawn("svg", { class: "map", height: HEIGHT, role: "img" });
    if (names.length > 1) {
      const [acrossLabel, across] = pick("Across", names[0]);
      const [upLabel, up] = pick("Up", names[1]);
      this.across = across;
      this.up = up;
      place.append(element("p", { class: "row" }, acrossLabel, upLabel));
    }
    this.tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
    const frame = element("div", { class: "map-frame" }, this.svg, this.tip);
    place.append(frame, this.legend, this.words);
    this.svg.addEventListener("pointerdown", (event) => this.pick(event));
    this.svg.addEventListener("pointermove", (event) => (event.buttons ? this.pick(event) : this.hover(event)));
    this.svg.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  measure() {
    this.width = Math.max(this.svg.parentElement.clientWidth, 300);
  }

  get axes() {
    if (!this.names.length) return [];
    if (this.names.length === 1) return [this.names[0]];
    const across = this.across.value;
    const up = this.up.value === across ? this.names.find((name) => name !== across) : this.up.value;
    this.up.value = up;
    return [across, up];
  }

  sizes(name, many) {
    const dial = this.controls.dial(name);
    const { range } = dial;
    const last = dial.sizes.at(-1);
    const base = Math.max(range.lo, range.divisor, 1);
    const octaves = Math.log2(last / base);
    if (octaves >= 5) {
      // Equal steps of a ratio, with every doubling among them: these get the labels.
      const per = Math.max(1, Math.floor((many - 1) / octaves));
      const snap = (size) => Math.min(Math.max(Math.round(size / range.divisor) * range.divisor, range.lo), last);
      const found = new Set();
      for (let k = 0; k <= octaves * per; k += 1) found.add(snap(base * 2 ** (k / per)));
      return [...found.add(last)].sort((a, b) => a - b);
    }
    const all = stops(range, [last]);
    if (all.length <= many) return all;
    return Array.from({ length: many }, (_, k) => all[Math.round((k * (all.length - 1)) / (many - 1))]);
  }

  peakAt(sizes) {
    const made = this.model.shape({ ...this.controls.chosen(), ...sizes });
    if (made.problems.length) return null;
    return this.model.peakAt(made, this.outside);
  }

  // `way` is peak, fits or moment; `budget` in bytes or null; `outside`: inputs and weights count too.
  draw({ way, budget, outside }) {
    Object.assign(this, { way, budget, outside });
    const axes = this.axes;
    this.place.hidden = !axes.length;
    if (!axes.length) return;
    const { width } = this;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.box = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.right, h: HEIGHT - MARGIN.top - MARGIN.bottom };
    this.columns = this.sizes(axes[0], axes.length > 1 ? ACROSS : 120);
    if (axes.length > 1) this.cells(axes);
    else this.curve(axes[0]);
    this.words.textContent = budget === null ? "" : axes.map((name) => this.largest(name)).filter(Boolean).join(" ");
  }

  cells([across, up]) {
    this.lines = this.sizes(up, DOWN);
    const grid = this.lines.map((v) => this.columns.map((u) => this.peakAt({ [across]: u, [up]: v })));
    const classes = this.classes(grid.flat().filter((cell) => cell !== null));
    const { x, y, w, h } = this.box;
    const [dx, dy] = [w / this.columns.length, h / this.lines.length];
    const parts = [];
    const places = new Map();
    grid.forEach((line, j) => {
      let start = 0;
      const kinds = line.map((cell) => (cell === null ? "illegal" : classes.of(cell)));
      for (let k = 1; k <= kinds.length; k += 1) {
        if (k < kinds.length && kinds[k] === kinds[start]) continue;
        const box = { x: x + start * dx, y: y + h - (j + 1) * dy, width: (k - start) * dx + 0.4, height: dy + 0.4 };
        parts.push(drawn("rect", { class: `cell ${classes.style(kinds[start])}`, ...box }));
        if (!places.has(kinds[start])) places.set(kinds[start], []);
        places.get(kinds[start]).push({ x: box.x + box.width / 2, y: box.y + dy / 2, width: box.width });
        start = k;
      }
    });
    // The name of every class where it has most room, so that no colour needs a legend.
    const named = [];
    for (const [kind, runs] of places) {
      const text = classes.name(kind);
      const best = runs.reduce((a, b) => (b.width > a.width + 1 ? b : a));
      const widest = runs.filter((run) => run.width >= best.width * 0.8);
      const at = widest[Math.floor(widest.length / 2)];
      if (!text || best.width < text.length * 6.2 || runs.length * dy < 14) continue;
      const middle = { x: at.x, y: Math.min(Math.max(at.y + 4, y + 13), y + h - 5), width: text.length * 6.6 };
      if (named.some((other) => Math.abs(other.y - middle.y) < 13 && Math.abs(other.x - middle.x) < (other.width + middle.width) / 2)) continue;
      named.push(middle);
      parts.push(drawn("text", { class: `cell-name ${classes.style(kind)}`, x: middle.x, y: middle.y, "text-anchor": "middle", text }));
    }
    const [u, v] = [across, up].map((name) => this.controls.dial(name).size);
    const cx = x + (nearestIndex(this.columns, u) + 0.5) * dx;
    const cy = y + h - (nearestIndex(this.lines, v) + 0.5) * dy;
    parts.push(drawn("line", { class: "here", x1: cx, x2: cx, y1: y, y2: y + h }), drawn("line", { class: "here", x1: x, x2: x + w, y1: cy, y2: cy }));
    parts.push(drawn("circle", { class: "here-dot", cx, cy, r: 5 }));
    parts.push(...this.scale(across, this.columns, true), ...this.scale(up, this.lines, false));
    this.svg.setAttribute("aria-label", `${classes.title} over ${across} and ${up}; the mark is at ${across} ${count(u)}, ${up} ${count(v)}`);
    this.svg.replaceChildren(...parts);
    this.legend.replaceChildren(...classes.legend());
  }

  curve(name) {
    const { x, y, w, h } = this.box;
    const found = this.columns.map((size) => this.peakAt({ [name]: size }));
    const { ticks, end: top } = axis(Math.max(1, ...found.map((cell) => (cell ? Number(cell.bytes) : 0))));
    const dx = w / Math.max(this.columns.length - 1, 1);
    const at = (size) => y + h - (Number(size) / top) * h;
    const d = found.flatMap((cell, k) => (cell ? [`${k && found[k - 1] ? "L" : "M"}${(x + k * dx).toFixed(1)} ${at(cell.bytes).toFixed(1)}`] : [])).join("");
    const parts = [drawn("line", { class: "axis", x1: x, x2: x + w, y1: y + h, y2: y + h })];
    for (const size of ticks) {
      parts.push(drawn("line", { class: "grid", x1: x, x2: x + w, y1: at(size), y2: at(size) }));
      parts.push(drawn("text", { class: "tick", x: x - 8, y: at(size) + 4, "text-anchor": "end", text: roundBytes(size) }));
    }
    parts.push(drawn("path", { class: "curve", d }));
    if (this.budget !== null && this.budget <= top) {
      parts.push(drawn("line", { class: "bound", x1: x, x2: x + w, y1: at(this.budget), y2: at(this.budget) }));
      parts.push(drawn("text", { class: "bound-name", x: x + 6, y: at(this.budget) - 5, text: `budget ${bytes(this.budget)}` }));
    }
    const size = this.controls.dial(name).size;
    const here = nearestIndex(this.columns, size);
    parts.push(drawn("line", { class: "here", x1: x + here * dx, x2: x + here * dx, y1: y, y2: y + h }));
    if (found[here]) parts.push(drawn("circle", { class: "here-dot", cx: x + here * dx, cy: at(found[here].bytes), r: 5 }));
    parts.push(...this.scale(name, this.columns, true));
    this.svg.setAttribute("aria-label", `Peak over ${name}; the mark is at ${count(size)}`);
    this.svg.replaceChildren(...parts);
    this.legend.replaceChildren();
  }

  scale(name, sizes, across) {
    const { x, y, w, h } = this.box;
    const room = across ? 46 : 22;
    const doubling = sizes.map((size) => Number.isInteger(Math.log2(size / sizes[0])) || Number.isInteger(Math.log2(size)));
    const some = doubling.filter(Boolean).length > 3;
    const parts = [];
    let free = 0;
    sizes.forEach((size, k) => {
      const at = (k + 0.5) / sizes.length;
      if ((some && !doubling[k]) || at * (across ? w : h) < free) return;
      free = at * (across ? w : h) + room;
      const place = across ? { x: x + at * w, y: y + h + 17, "text-anchor": "middle" } : { x: x - 8, y: y + h - at * h + 4, "text-anchor": "end" };
      parts.push(drawn("text", { class: "tick", ...place, text: count(size) }));
    });
    const title = across ? { x: x + w, y: y + h + 36, "text-anchor": "end" } : { x: 14, y: y + h / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${y + h / 2})` };
    parts.push(drawn("text", { class: "axis-name", ...title, text: name }));
    return parts;
  }

  // How cells are told apart, with a name and a style for each kind.
  classes(cells) {
    if (this.way === "fits" && this.budget !== null) {
      const kind = (cell) => (cell.bytes <= this.budget ? "fits" : "over");
      const name = (k) => ({ fits: "fits", over: "does not fit", illegal: "not a legal shape" })[k];
      return { title: `What fits in ${bytes(this.budget)}`, of: kind, name, style: (k) => k, legend: () => [] };
    }
    if (this.way === "version") return this.versions(cells);
    if (this.way === "moment") return this.moments(cells);
    const sizes = cells.map((cell) => Math.max(Number(cell.bytes), 1));
    const [low, high] = [Math.log2(Math.min(...sizes)), Math.log2(Math.max(...sizes))];
    const step = Math.max(1, Math.ceil((high - low) / 8));
    const first = Math.floor(low / step);
    const many = Math.floor(high / step) - first + 1;
    const limit = (k) => roundBytes(2 ** ((first + k) * step));
    return {
      title: "Peak",
      of: (cell) => Math.floor(Math.log2(Math.max(Number(cell.bytes), 1)) / step) - first,
      name: (k) => (k === "illegal" ? "not a legal shape" : `${k ? "≥ " : ""}${k ? limit(k) : `< ${limit(1)}`}`),
      style: (k) => (k === "illegal" ? "illegal" : `level-${Math.round((k / Math.max(many - 1, 1)) * 8)}`),
      legend: () => [],
    };
  }

  versions(cells) {
    const seen = [...new Set(cells.map((cell) => cell.version))].sort((a, b) => a - b);
    return {
      title: "Which version runs",
      of: (cell) => cell.version,
      name: (k) => (k === "illegal" ? "not a legal shape" : `version ${k}`),
      style: (k) => (k === "illegal" ? "illegal" : `kind-${k % 8}`),
      legend: () => seen.map((k) => element("span", {}, element("b", { class: `swatch kind-${k % 8}`, text: String(k) }), ` ${versionText(k, this.model.data.versions.list[k].name)}`)),
    };
  }

  moments(cells) {
    const members = this.model.membersOf(this.model.version);
    const seen = [...new Set(cells.map((cell) => cell.which))].sort((a, b) => members[a][1] - members[b][1]);
    const number = new Map(seen.map((which, k) => [which, k]));
    return {
      title: "Which moment is the peak",
      of: (cell) => number.get(cell.which),
      name: (k) => (k === "illegal" ? "not a legal shape" : String(k + 1)),
      style: (k) => (k === "illegal" ? "illegal" : `kind-${k % 8}`),
      legend: () =>
        seen.map((which, k) => {
          const row = members[which][1];
          const step = this.model.step(row);
          return element("span", {}, element("b", { class: `swatch kind-${k % 8}`, text: String(k + 1) }), ` step ${count(step)}, ${this.model.nodeLabel(row)}`);
        }),
    };
  }

  // The last size of a symbol that fits, checked there and one further: no assumption that peaks only grow.
  largest(name) {
    const { range } = this.controls.dial(name);
    const fits = (size) => {
      const found = this.peakAt({ [name]: size });
      return found !== null && found.bytes <= this.budget;
    };
    if (!fits(range.lo)) return `${name}: not even ${count(range.lo)} fits.`;
    let good = range.lo;
    let step = range.divisor;
    const last = range.hi ?? 2 ** 40;
    while (good + step <= last && fits(good + step)) {
      good += step;
      step *= 2;
    }
    if (good + step > last && range.hi !== null && fits(last)) return `${name}: all up to ${count(last)} fit.`;
    if (good + step > last && range.hi === null) return "";
    let bad = Math.min(good + step, last);
    while (bad - good > range.divisor) {
      const middle = good + Math.floor((bad - good) / 2 / range.divisor) * range.divisor;
      if (fits(middle)) good = middle;
      else bad = middle;
    }
    return `${name}: ${count(good)} fits, ${count(bad)} does not.`;
  }

  pick(event) {
    this.tip.hidden = true;
    this.controls.set(this.under(event));
  }

  hover(event) {
    const sizes = this.under(event);
    const found = this.peakAt(sizes);
    const shape = Object.entries(sizes).map(([name, size]) => `${name} ${count(size)}`).join(", ");
    const what = this.outside ? "with inputs and weights" : "peak";
    this.tip.hidden = false;
    showTip(this.tip, event, this.tip.parentElement, [shape, found === null ? "not a legal shape" : `${bytes(found.bytes)} ${what}`]);
  }

  // Sizes of the axes' symbols under the pointer.
  under(event) {
    const { x, y, w, h } = this.box;
    const frame = this.svg.getBoundingClientRect();
    const part = (at, from, size, many) => Math.min(Math.max(Math.floor(((at - from) / size) * many), 0), many - 1);
    const axes = this.axes;
    const sizes = { [axes[0]]: this.columns[part(event.clientX - frame.left, x, w, this.columns.length)] };
    if (axes.length > 1) sizes[axes[1]] = this.lines[this.lines.length - 1 - part(event.clientY - frame.top, y, h, this.lines.length)];
    return sizes;
  }
}

function nearestIndex(sizes, wanted) {
  let best = 0;
  sizes.forEach((size, k) => {
    if (Math.abs(size - wanted) < Math.abs(sizes[best] - wanted)) best = k;
  });
  return best;
}
