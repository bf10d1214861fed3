// Bytes in use over the run, stacked by scope; under it the moment that is looked at, and lifetimes.

import { ACTIVATION, INPUT, OUTPUT, WEIGHT } from "./model.js";
import { bytes, count, drawn, element, roundBytes } from "./words.js";

const HEIGHT = 300;
const MARGIN = { left: 78, right: 14, top: 22, bottom: 34 };
const COLUMNS = 900; // drawn at most; of the rows in one, the highest is shown
const NAMES = ["weights", "inputs", "outputs", "activations"];
const TIES = 46; // height of the part that joins the places of nodes in both runs
const MOST_TIES = 300;

export class Timeline {
  // `pairs` of the model with the one that it is held against, null where there is none.
  constructor(place, model, moved, pairs) {
    this.model = model;
    this.moved = moved;
    this.pairs = pairs;
    this.aligned = false; // whether the other's nodes are drawn where the same nodes are here
    this.from = 0;
    this.to = Math.max(model.run.rows.length, 1);
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
      "aria-valuemax": Math.max(model.run.rows.length, 1),
    }, this.svg);
    this.tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
    place.append(this.cursor, this.tip);
    if (pairs) {
      this.ties = drawn("svg", { class: "ties", height: TIES, "aria-hidden": "true" });
      place.append(this.ties);
    }
    this.cursor.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointerdown", (event) => this.pick(event));
    this.svg.addEventListener("pointermove", (event) => (event.buttons ? this.pick(event) : this.hover(event)));
    this.svg.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  // Asked for once per layout: reading a width makes the browser lay the page out.
  measure() {
    this.width = Math.max(this.cursor.clientWidth, 320);
  }

  get many() {
    return this.model.run.rows.length;
  }

  // Where a place among the rows of the run is drawn.
  at(place) {
    const inner = this.width - MARGIN.left - MARGIN.right;
    return MARGIN.left + ((place - this.from) / (this.to - this.from)) * inner;
  }

  placeOf(event) {
    const box = this.svg.getBoundingClientRect();
    const inner = this.width - MARGIN.left - MARGIN.right;
    const part = (event.clientX - box.left - MARGIN.left) / inner;
    const place = this.from + Math.floor(part * (this.to - this.from));
    return Math.min(Math.max(place, 0), Math.max(this.many - 1, 0));
  }

  pick(event) {
    this.tip.hidden = true;
    this.move(this.placeOf(event));
  }

  hover(event) {
    const row = this.model.run.rows[this.placeOf(event)];
    this.tip.hidden = row === undefined;
    if (this.tip.hidden) return;
    const parts = [`step ${count(this.model.step(row))}, ${this.model.nodeLabel(row)}`, `${bytes(this.state.inUseAt(row))} in use`];
    if (this.state.outputsAt(row)) parts.push(`${bytes(this.state.outputsAt(row))} of it outputs`);
    showTip(this.tip, event, this.cursor, parts);
  }

  // To a row of the run; null: back to the peak, and after it.
  go(row) {
    this.row = row;
    if (row !== null) this.show(this.model.run.before[row]);
    this.moved();
  }

  move(place) {
    this.go(this.model.run.rows[Math.min(Math.max(place, 0), this.many - 1)] ?? 0);
  }

  show(place) {
    if (place >= this.from && place < this.to) return;
    const half = Math.floor((this.to - this.from) / 2);
    this.window(place - half, place - half + (this.to - this.from));
  }

  window(from, to) {
    const span = Math.min(Math.max(Math.round(to - from), Math.min(12, this.many)), this.many);
    this.from = Math.min(Math.max(Math.round(from), 0), this.many - span);
    this.to = this.from + Math.max(span, 1);
  }

  // Around a row of the run.
  zoom(factor, row) {
    const around = this.model.run.before[row];
    const span = (this.to - this.from) * factor;
    const part = (around - this.from) / (this.to - this.from);
    this.window(around - part * span, around + (1 - part) * span);
    this.moved();
  }

  key(event) {
    const row = this.row ?? this.state.peakRow;
    const here = this.model.run.before[row];
    const page = Math.max(1, Math.round((this.to - this.from) / 10));
    const moves = {
      ArrowRight: here + 1,
      ArrowUp: here + 1,
      ArrowLeft: here - 1,
      ArrowDown: here - 1,
      PageUp: here + page,
      PageDown: here - page,
      Home: 0,
      End: this.many - 1,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "p" || event.key === "P") this.go(null);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5, row);
    else if (event.key === "-") this.zoom(2, row);
    else if (event.key === "0") this.zoom(this.many, row);
    else return;
    event.preventDefault();
  }

  // `other` is {model, state, name} of the model that this one is held against.
  draw(state, other) {
    this.state = state;
    if (this.of !== this.model.version) {
      // Another version runs now: another run, seen as a whole.
      if (this.of !== undefined) this.row = null;
      this.of = this.model.version;
      [this.from, this.to] = [0, Math.max(this.many, 1)];
      this.cursor.setAttribute("aria-valuemax", this.to);
    }
    const { width } = this;
    const right = width - MARGIN.right;
    const ground = HEIGHT - MARGIN.bottom;
    const base = this.outside(state);
    const columns = this.columns(this.model, state, base, this.from, this.to);
    const theirs = other ? (this.aligned ? this.alignedTheirs(other) : this.theirs(other)) : [];
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
    if (this.ties) this.tie(other);
    this.announce(state);
  }

  outside(state) {
    return (this.shown.has(WEIGHT) ? Number(state.weights) : 0) + (this.shown.has(INPUT) ? Number(state.inputs) : 0);
  }

  columns({ run }, state, base, from, to) {
    const places = to - from;
    const many = Math.min(places, COLUMNS);
    const found = [];
    for (let k = 0; k < many; k += 1) {
      const first = from + Math.floor((k * places) / many);
      const next = Math.max(from + Math.floor(((k + 1) * places) / many), first + 1);
      let best = run.rows[first];
      for (let place = first; place < next; place += 1) {
        const row = run.rows[place];
        if (state.inUse[row] > state.inUse[best]) best = row;
      }
      const outputs = this.shown.has(OUTPUT) ? state.outputs[best] ?? 0 : 0;
      const activations = this.shown.has(ACTIVATION) ? (state.inUse[best] ?? 0) - (state.outputs[best] ?? 0) : 0;
      found.push({ first, next, outputs, total: base + outputs + activations });
    }
    return found;
  }

  // The other model's outline: of the same part of its run.
  theirs({ model, state }) {
    const many = model.run.rows.length;
    const scale = many / Math.max(this.many, 1);
    const [from, to] = [this.from * scale, this.to * scale];
    const first = Math.floor(from);
    const last = Math.max(Math.min(Math.ceil(to), many), first + 1);
    return this.columns(model, state, this.outside(state), first, last).map(({ first: a, next, total }) => {
      const part = (place) => Math.min(Math.max((place - from) / (to - from), 0), 1);
      return { from: part(a), to: part(next), total };
    });
  }

  // The same at the places that the same nodes have here; nothing where a node is only here.
  alignedTheirs({ model, state }) {
    const places = this.to - this.from;
    const many = Math.min(places, COLUMNS);
    const base = this.outside(state);
    const found = [];
    let jump = true;
    for (let k = 0; k < many; k += 1) {
      const first = this.from + Math.floor((k * places) / many);
      const next = Math.max(this.from + Math.floor(((k + 1) * places) / many), first + 1);
      let total = null;
      for (let place = first; place < next; place += 1) {
        const row = this.pairs.of(this.model.run.rows[place]);
        if (row !== null) total = Math.max(total ?? 0, base + this.shownAt(state, row));
      }
      if (total !== null) found.push({ from: (first - this.from) / places, to: (next - this.from) / places, total, jump });
      jump = total === null;
    }
    return found;
  }

  shownAt(state, row) {
    const outputs = state.outputs[row] ?? 0;
    const activations = (state.inUse[row] ?? 0) - outputs;
    return (this.shown.has(OUTPUT) ? outputs : 0) + (this.shown.has(ACTIVATION) ? activations : 0);
  }

  // Lines from where nodes are in the other's run, above, to where they are here; the present one stands out.
  tie(other) {
    this.ties.toggleAttribute("hidden", !other);
    if (!other) return;
    const right = this.width - MARGIN.right;
    const scale = Math.max(this.many, 1) / Math.max(other.model.run.rows.length, 1);
    const places = this.to - this.from;
    const every = Math.max(1, Math.ceil(places / MOST_TIES));
    const seen = (x) => x >= MARGIN.left - 1 && x <= right + 1;
    const line = (row, css) => {
      const theirs = this.pairs.of(row);
      if (theirs === null) return [];
      const a = this.at((other.model.run.before[theirs] + 0.5) * scale);
      const b = this.at(this.model.run.before[row] + 0.5);
      return seen(a) && seen(b) ? [drawn("line", { class: css, x1: a, y1: 14, x2: b, y2: TIES - 12 })] : [];
    };
    const parts = [];
    for (let place = this.from; place < this.to; place += every) parts.push(...line(this.model.run.rows[place], "tied"));
    parts.push(...line(this.row ?? this.state.peakRow, "tied now"));
    parts.push(drawn("text", { class: "tick", x: MARGIN.left - 8, y: 16, "text-anchor": "end", text: "other run" }));
    parts.push(drawn("text", { class: "tick", x: MARGIN.left - 8, y: TIES - 8, "text-anchor": "end", text: "this run" }));
    this.ties.setAttribute("width", this.width);
    this.ties.setAttribute("viewBox", `0 0 ${this.width} ${TIES}`);
    this.ties.replaceChildren(...parts);
  }

  area(columns, height, y, ground) {
    let d = `M${MARGIN.left} ${ground}`;
    for (const column of columns) {
      d += `L${this.at(column.first).toFixed(1)} ${y(height(column)).toFixed(1)}H${this.at(column.next).toFixed(1)}`;
    }
    return `${d}V${ground}Z`;
  }

  steps(ground, right) {
    const parts = [];
    const wanted = Math.max(2, Math.floor((right - MARGIN.left) / 90));
    const gap = Math.max(1, Math.round(rounded((this.to - this.from) / wanted)));
    let last = -Infinity;
    let before = null;
    for (let place = this.from; place < this.to; place += 1) {
      const number = this.model.step(this.model.run.rows[place]);
      const due = number !== before && (number === 1 || number % gap === 0);
      before = number;
      if (!due || this.at(place) - last < 40) continue;
      last = this.at(place);
      parts.push(drawn("line", { class: "axis", x1: last, x2: last, y1: ground, y2: ground + 4 }));
      parts.push(drawn("text", { class: "tick", x: last, y: ground + 17, "text-anchor": "middle", text: count(number) }));
    }
    parts.push(drawn("text", { class: "tick", x: right, y: ground + 31, "text-anchor": "end", text: "step of the run" }));
    return parts;
  }

  marks(state, base, y, ground) {
    const parts = [];
    const { before } = this.model.run;
    const seen = (row) => before[row] >= this.from && before[row] < this.to;
    const middle = (row) => this.at(before[row] + 0.5);
    const clip = (x) => Math.min(Math.max(x, MARGIN.left), this.width - MARGIN.right);
    for (const rows of this.lifetime) {
      const [from, to] = [before[rows.from], before[rows.to]];
      if (to <= this.from || from >= this.to || from === to) continue;
      const [a, b] = [clip(this.at(from)), clip(this.at(to))];
      parts.push(drawn("rect", { class: "lifetime", x: a, width: Math.max(b - a, 2), y: MARGIN.top, height: ground - MARGIN.top }));
      parts.push(drawn("rect", { class: "lifetime-bar", x: a, width: Math.max(b - a, 2), y: ground + 1, height: 4 }));
    }
    const row = this.row ?? state.peakRow;
    if (seen(row)) {
      const x = middle(row);
      parts.push(drawn("line", { class: "moment", x1: x, x2: x, y1: MARGIN.top - 2, y2: ground + 6 }));
    }
    if (seen(state.peakRow)) {
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
    const step = this.model.step(row);
    this.cursor.setAttribute("aria-valuenow", this.model.run.before[row] + 1);
    this.cursor.setAttribute(
      "aria-valuetext",
      `step ${step}, ${this.model.nodeLabel(row)}, ${bytes(state.inUse[row] ?? 0)} in use`,
    );
  }
}

// A note beside the pointer, inside the part of the page that it is about.
export function showTip(tip, event, within, lines) {
  const box = within.getBoundingClientRect();
  tip.replaceChildren(...lines.map((text) => element("div", { text })));
  const x = event.clientX - box.left;
  const left = x > box.width / 2;
  tip.style.top = `${Math.max(event.clientY - box.top - 12, 0)}px`;
  tip.style.left = left ? "auto" : `${x + 14}px`;
  tip.style.right = left ? `${box.width - x + 14}px` : "auto";
}

function outline(columns, x, y) {
  return columns
    .map(({ from, to, total, jump }, k) => `${k && !jump ? "L" : "M"}${x(from).toFixed(1)} ${y(total).toFixed(1)}H${x(to).toFixed(1)}`)
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
