// Sliders and exact fields, one pair per symbol. A slider stands on legal sizes only, closer together where
// they are small; the field takes any legal size.

import { rangeText } from "./model.js";
import { count, element } from "./words.js";

const STOPS = 400; // of a slider
const USUAL = 4096; // where a slider ends if nothing limits the symbol

export function stops({ lo, hi, divisor }, wanted = []) {
  const last = hi ?? Math.max(USUAL, 8 * lo, ...wanted);
  const first = lo;
  const snap = (size) => Math.min(Math.max(Math.round(size / divisor) * divisor, first), last);
  const found = new Set([first, last, ...wanted.filter((size) => size >= first && size <= last)]);
  const base = Math.max(first, divisor);
  const wide = last / Math.max(base, 1) >= 32;
  for (let k = 0; k <= STOPS; k += 1) {
    const part = k / STOPS;
    found.add(snap(wide ? base * (last / base) ** part : first + (last - first) * part));
  }
  // Round sizes are what people look for.
  for (let size = base; wide && size <= last; size *= 2) found.add(snap(size));
  return [...found].filter((size) => size % divisor === 0).sort((a, b) => a - b);
}

function nearest(sizes, wanted) {
  let best = 0;
  sizes.forEach((size, k) => {
    if (Math.abs(size - wanted) < Math.abs(sizes[best] - wanted)) best = k;
  });
  return best;
}

class Dial {
  constructor(range, wanted, size, changed) {
    this.range = range;
    this.sizes = stops(range, wanted);
    this.changed = changed;
    const { name, lo, hi, divisor } = range;
    const id = `size-${name}`;
    this.slider = element("input", {
      type: "range",
      min: 0,
      max: this.sizes.length - 1,
      step: 1,
      "aria-label": `${name}, slider`,
      oninput: () => this.take(this.sizes[Number(this.slider.value)]),
    });
    this.field = element("input", {
      type: "number",
      id,
      min: lo,
      max: hi,
      step: divisor,
      inputmode: "numeric",
      onchange: () => this.typed(),
    });
    this.note = element("p", { class: "note", text: rangeText(range) });
    this.part = element(
      "div",
      { class: "dial", "data-symbol": name },
      element("label", { for: id }, element("var", { text: name })),
      this.field,
      this.slider,
      this.note,
    );
    if (hi !== null && lo === hi) {
      this.slider.disabled = true;
      this.field.readOnly = true;
    }
    this.show(size);
  }

  typed() {
    const { lo, hi, divisor } = this.range;
    const wanted = Math.round(Number(this.field.value));
    if (this.field.value === "" || !Number.isSafeInteger(wanted)) {
      this.show(this.size);
      return;
    }
    const top = hi === null ? wanted : Math.min(wanted, hi);
    const size = Math.max(Math.floor(top / divisor) * divisor, lo);
    const moved = size === wanted ? "" : ` – ${count(wanted)} is not, took ${count(size)}`;
    this.take(size);
    this.note.textContent = rangeText(this.range) + moved;
  }

  take(size) {
    this.show(size);
    this.changed();
  }

  show(size) {
    this.size = size;
    this.field.value = String(size);
    this.slider.value = String(nearest(this.sizes, size));
    this.slider.setAttribute("aria-valuetext", `${this.range.name} ${count(size)}`);
    this.note.textContent = rangeText(this.range);
  }
}

export class Controls {
  // `model` is the one reported on, `shapes` the presets, `start` the one to begin with, `others` ranges of
  // symbols that only the other model has.
  constructor(place, model, shapes, start, others, changed) {
    const { domain } = model.data;
    this.changed = changed;
    this.dials = [...domain.free, ...others].map((range) => {
      const wanted = shapes.map((shape) => shape[range.name]).filter((size) => size !== undefined);
      return new Dial(range, wanted, start[range.name] ?? range.lo, changed);
    });
    place.append(...this.dials.map((dial) => dial.part));
    this.tied = domain.tied.map(([name]) => {
      const value = element("output", { class: "number" });
      place.append(
        element("p", { class: "tied" }, element("var", { text: name }), " = ", value, element("small", { text: " follows" })),
      );
      return [name, value];
    });
    this.data = domain.data.map((entry) => new DataDial(entry, changed));
    if (this.data.length) {
      const list = element("details", { class: "data-sizes" }, element("summary", { text: `Sizes that data decides (${this.data.length})` }));
      list.append(
        element("p", { class: "note", text: "Taken as large as they can be, unless set here." }),
        ...this.data.map((dial) => dial.part),
      );
      place.append(list);
    }
  }

  // Sizes by name: of all dials, and of data where one was set.
  chosen() {
    const found = {};
    for (const dial of this.dials) found[dial.range.name] = dial.size;
    for (const dial of this.data) if (dial.size !== null) found[dial.entry.name] = dial.size;
    return found;
  }

  set(sizes) {
    for (const dial of this.dials) {
      if (sizes[dial.range.name] !== undefined) dial.show(sizes[dial.range.name]);
    }
    this.changed();
  }

  dial(name) {
    return this.dials.find((dial) => dial.range.name === name);
  }

  // What a shape has made of the sizes that are not chosen.
  follow({ shape, data }) {
    for (const [name, value] of this.tied) value.textContent = count(shape[name]);
    data.forEach((entry, k) => this.data[k].follow(entry));
  }
}

class DataDial {
  constructor(entry, changed) {
    this.entry = entry;
    this.size = null;
    const id = `size-${entry.name}`;
    this.field = element("input", {
      type: "number",
      id,
      min: entry.lo,
      inputmode: "numeric",
      onchange: () => {
        const wanted = Math.round(Number(this.field.value));
        this.size = this.field.value === "" || !Number.isSafeInteger(wanted) ? null : Math.max(wanted, entry.lo);
        changed();
      },
    });
    this.note = element("p", { class: "note" });
    const what = entry.tensor && entry.axis >= 0 ? `${entry.tensor}[${entry.axis}]` : entry.tensor;
    this.part = element(
      "div",
      { class: "dial data" },
      element("label", { for: id }, element("var", { text: entry.name }), what ? ` = ${what}` : ""),
      this.field,
      this.note,
    );
  }

  follow({ most, size }) {
    if (document.activeElement !== this.field) this.field.value = this.size === null ? "" : String(this.size);
    this.field.placeholder = String(size);
    this.note.textContent = most === null ? "nothing limits it; empty: 1,024" : `at most ${count(most)}; empty: that`;
  }
}
