// Bytes in use over the run, stacked by scope; under it the moment that is looked at, and lifetimes.

import { ACTIVATION, INPUT, OUTPUT, WEIGHT } from "./model.js";
import { bytes, count, drawn, element, roundBytes } from "./words.js";

const HEIGHT = 300;
const MARGIN = { left: 78, right: 14, top: 22, bottom: 34 };
const COLUMNS = 900; // drawn at most; of the rows in one, the highest is shown
const NAMES = ["weights", "inputs", "outputs", "activations"];

export class Timeline {
  constructor(place, model, moved) {
    this.model = model;
    this.moved = moved;
    this.from = 0;
    this.to = Math.max(model.rows, 1);
    this.shown = new Set([WEIGHT, INPUT, OUTPUT, ACTIVATION]);
    this.row = null; // null: follows the peak
    this.lifetime = [];
    this.svg = drawn("svg", { class: "timeline", height: HEIGHT, "aria-hidden": "true" });
    this.cursor = element("div", {
      class: "cursor",
      role: "slider",
      tabindex: 0,
      "aria-label": "Moment of the run. Arrow keys move, P goes to the peak, plus and minus zoom.",
      "aria-valuemin": 1,
      "aria-valuemax": Math.max(model.rows, 1),
    }, this.svg);
    place.append(this.cursor);
    this.cursor.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointerdown", (event) => this.pick(event));
    this.svg.addEventListener("pointermove", (event) => event.buttons && this.pick(event));
  }

  // Asked for once per layout: reading a width makes the browser lay the page out.
  measure() {
    this.width = Math.max(this.cursor.clientWidth, 320);
  }

  at(row) {
    const inner = this.width - MARGIN.left - MARGIN.right;
    return MARGIN.left + ((row - this.from) / (this.to - this.from)) * inner;
  }

  pick(event) {
    const box = this.svg.getBoundingClientRect();
    const inner = this.width - MARGIN.left - MARGIN.right;
    const part = (event.clientX - box.left - MARGIN.left) / inner;
    this.go(this.from + Math.floor(part * (this.to - this.from)));
  }

  go(row) {
    this.row = row === null ? null : Math.min(Math.max(row, 0), this.model.rows - 1);
    if (this.row !== null && (this.row < this.from || this.row >= this.to)) {
      const half = Math.floor((this.to - this.from) / 2);
      this.window(this.row - half, this.row - half + (this.to - this.from));
    }
    this.moved();
  }

  window(from, to) {
    const span = Math.min(Math.max(Math.round(to - from), Math.min(12, this.model.rows)), this.model.rows);
    this.from = Math.min(Math.max(Math.round(from), 0), this.model.rows - span);
    this.to = this.from + Math.max(span, 1);
  }

  zoom(factor, around) {
    const span = (this.to - this.from) * factor;
    const part = (around - this.from) / (this.to - this.from);
    this.window(around - part * span, around + (1 - part) * span);
    this.moved();
  }

  key(event) {
    const here = this.row ?? this.state.peakRow;
    const page = Math.max(1, Math.round((this.to - this.from) / 10));
    const moves = {
      ArrowRight: here + 1,
      ArrowUp: here + 1,
      ArrowLeft: here - 1,
      ArrowDown: here - 1,
      PageUp: here + page,
      PageDown: here - page,
      Home: 0,
      End: this.model.rows - 1,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.go(moves[event.key]);
    else if (event.key === "p" || event.key === "P") this.go(null);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5, here);
    else if (event.key === "-") this.zoom(2, here);
    else if (event.key === "0") this.zoom(this.model.rows, here);
    else return;
    event.preventDefault();
  }

  // `other` is {model, state, name} of the model that this one is held against.
  draw(state, other) {
    this.state = state;
    const { width } = this;
    const right = width - MARGIN.right;
    const ground = HEIGHT - MARGIN.bottom;
    const base = this.outside(state);
    const columns = this.columns(state, base, this.from, this.to);
    const theirs = other ? this.theirs(other) : [];
    const bound = state.bound === null ? null : base + Number(state.bound);
    let top = Math.max(1, base, bound ?? 0, ...columns.map((c) => c.total), ...theirs.map((c) => c.total));
    const { ticks, end } = axis(top);
    top = end;
    const y = (size) => ground - (size / top) * (ground - MARGIN.top);
    const parts = [];
    for (const tick of ticks) {
      parts.push(drawn("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick) }));
      parts.push(drawn("text", { class: "tick", x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end", text: roundBytes(tick) }));
    }
    // From the top of the stack down: each area covers the one before.
    const layers = [
      [ACTIVATION, (c) => c.total],
      [OUTPUT, (c) => base + c.outputs],
      [INPUT, () => base],
      [WEIGHT, () => (this.shown.has(WEIGHT) ? Number(state.weights) : 0)],
    ];
    for (const [scope, height] of layers) {
      if (!this.shown.has(scope)) continue;
      parts.push(drawn("path", { class: `area ${NAMES[scope]}`, d: this.area(columns, height, y, ground) }));
    }
    if (theirs.length) {
      parts.push(drawn("path", { class: "other", d: outline(theirs, (part) => MARGIN.left + part * (right - MARGIN.left), y) }));
    }
    if (bound !== null) {
      parts.push(drawn("line", { class: "bound", x1: MARGIN.left, x2: right, y1: y(bound), y2: y(bound) }));
    }
    parts.push(drawn("line", { class: "axis", x1: MARGIN.left, x2: right, y1: ground, y2: ground }));
    parts.push(...this.steps(ground, right), ...this.marks(state, base, y, ground));
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    this.announce(state);
  }

  outside(state) {
    return (this.shown.has(WEIGHT) ? Number(state.weights) : 0) + (this.shown.has(INPUT) ? Number(state.inputs) : 0);
  }

  columns(state, base, from, to) {
    const rows = to - from;
    const many = Math.min(rows, COLUMNS);
    const found = [];
    for (let k = 0; k < many; k += 1) {
      const first = from + Math.floor((k * rows) / many);
      const next = Math.max(from + Math.floor(((k + 1) * rows) / many), first + 1);
      let best = first;
      for (let row = first; row < next; row += 1) if (state.inUse[row] > state.inUse[best]) best = row;
      const outputs = this.shown.has(OUTPUT) ? state.outputs[best] ?? 0 : 0;
      const activations = this.shown.has(ACTIVATION) ? (state.inUse[best] ?? 0) - (state.outputs[best] ?? 0) : 0;
      found.push({ first, next, outputs, total: base + outputs + activations });
    }
    return found;
  }

  // The other model's outline: of the same part of its run.
  theirs({ model, state }) {
    const scale = model.rows / Math.max(this.model.rows, 1);
    const [from, to] = [this.from * scale, this.to * scale];
    const first = Math.floor(from);
    const last = Math.max(Math.min(Math.ceil(to), model.rows), first + 1);
    return this.columns(state, this.outside(state), first, last).map(({ first: a, next, total }) => {
      const part = (row) => Math.min(Math.max((row - from) / (to - from), 0), 1);
      return { from: part(a), to: part(next), total };
    });
  }

  area(columns, height, y, ground) {
    let d = `M${MARGIN.left} ${ground}`;
    for (const column of columns) {
      d += `L${this.at(column.first).toFixed(1)} ${y(height(column)).toFixed(1)}H${this.at(column.next).toFixed(1)}`;
    }
    return `${d}V${ground}Z`;
  }

  steps(ground, right) {
    const { step } = this.model.data.rows;
    const parts = [];
    const wanted = Math.max(2, Math.floor((right - MARGIN.left) / 90));
    const gap = Math.max(1, Math.round(rounded((this.to - this.from) / wanted)));
    let last = -Infinity;
    for (let row = this.from; row < this.to; row += 1) {
      const number = step[row] + 1;
      const due = number === 1 || number % gap === 0;
      if (!due || (row && step[row - 1] === step[row] && row !== this.from) || this.at(row) - last < 40) continue;
      last = this.at(row);
      parts.push(drawn("line", { class: "axis", x1: last, x2: last, y1: ground, y2: ground + 4 }));
      parts.push(drawn("text", { class: "tick", x: last, y: ground + 17, "text-anchor": "middle", text: count(number) }));
    }
    parts.push(drawn("text", { class: "tick", x: right, y: ground + 31, "text-anchor": "end", text: "step of the run" }));
    return parts;
  }

  marks(state, base, y, ground) {
    const parts = [];
    const middle = (row) => (this.at(row) + this.at(row + 1)) / 2;
    const clip = (x) => Math.min(Math.max(x, MARGIN.left), this.width - MARGIN.right);
    for (const { from, to } of this.lifetime) {
      if (to <= this.from || from >= this.to) continue;
      const [a, b] = [clip(this.at(from)), clip(this.at(to))];
      parts.push(drawn("rect", { class: "lifetime", x: a, width: Math.max(b - a, 2), y: MARGIN.top, height: ground - MARGIN.top }));
      parts.push(drawn("rect", { class: "lifetime-bar", x: a, width: Math.max(b - a, 2), y: ground + 1, height: 4 }));
    }
    const row = this.row ?? state.peakRow;
    if (row >= this.from && row < this.to) {
      const x = middle(row);
      parts.push(drawn("line", { class: "moment", x1: x, x2: x, y1: MARGIN.top - 2, y2: ground + 6 }));
    }
    if (state.peakRow >= this.from && state.peakRow < this.to) {
      const x = middle(state.peakRow);
      const at = y(base + Number(state.peak)) - 4;
      const end = x > this.width - 90 ? "end" : x < MARGIN.left + 40 ? "start" : "middle";
      parts.push(drawn("path", { class: "peak-mark", d: `M${x} ${at}l-5 -8h10z` }));
      parts.push(drawn("text", { class: "peak-name", x, y: Math.max(at - 11, 11), "text-anchor": end, text: "peak" }));
    }
    return parts;
  }

  announce(state) {
    const row = this.row ?? state.peakRow;
    const step = this.model.data.rows.step[row] ?? 0;
    this.cursor.setAttribute("aria-valuenow", row + 1);
    this.cursor.setAttribute(
      "aria-valuetext",
      `step ${step + 1}, ${this.model.nodeLabel(row)}, ${bytes(state.inUse[row] ?? 0)} in use`,
    );
  }
}

function outline(columns, x, y) {
  return columns
    .map(({ from, to, total }, k) => `${k ? "L" : "M"}${x(from).toFixed(1)} ${y(total).toFixed(1)}H${x(to).toFixed(1)}`)
    .join("");
}

function rounded(size) {
  const power = 10 ** Math.floor(Math.log10(Math.max(size, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= size);
}

// Ticks in round numbers of the unit that suits the largest size.
export function axis(largest) {
  const unit = 1024 ** Math.min(Math.max(Math.floor(Math.log2(Math.max(largest, 1)) / 10), 0), 5);
  const raw = largest / unit / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= raw) * unit;
  const ticks = [];
  for (let k = 0; k * step < largest * 1.0001 || k < 2; k += 1) ticks.push(k * step);
  const end = Math.max(ticks.at(-1), largest) * 1.04;
  return { ticks, end };
}
