// What grew against another model, at the shape that is set: scopes, and the tensors at the peak by name.

import { bytes, change, count, element, exactly } from "./words.js";

const SHOWN = 20;

export class GrowthTable {
  constructor(place, model, other) {
    Object.assign(this, { place, model, other });
  }

  draw(state, theirs, problems) {
    if (theirs === null || problems.length) {
      const why = problems.length ? `: ${problems.join("; ")}` : "";
      this.place.replaceChildren(element("p", { class: "warning", text: `${this.other.data.title} does not take this shape${why}.` }));
      return;
    }
    const rows = [
      ["Peak", theirs.peak, state.peak],
      ["Inputs", theirs.inputs, state.inputs],
      ["Weights", theirs.weights, state.weights],
      ["Together", theirs.total, state.total],
      ["Nodes", this.other.data.nodes, this.model.data.nodes],
    ];
    const line = ([name, before, after], k) => {
      const show = k === 4 ? count : bytes;
      const exact = k === 4 ? count : exactly;
      return element(
        "tr",
        {},
        element("th", { scope: "row", text: name }),
        element("td", { class: "number", title: exact(before), text: show(before) }),
        element("td", { class: "number", title: exact(after), text: show(after) }),
        element("td", { class: "number", text: change(after, before) }),
      );
    };
    const head = ["", this.other.data.title, this.model.data.title, "change"].map((text) => element("th", { scope: "col", class: text ? "number" : "", text }));
    const scopes = element("table", { class: "compact" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows.map(line)));
    this.place.replaceChildren(element("div", { class: "scroll" }, scopes), ...this.tensors(state, theirs));
  }

  tensors(state, theirs) {
    const at = (model, found) => {
      const sizes = new Map();
      for (const { tensor, bytes: size } of model.alive(found.peakRow, found)) {
        const name = model.data.tensors.name[tensor];
        sizes.set(name, (sizes.get(name) ?? 0) + Number(size));
      }
      return sizes;
    };
    const [before, after] = [at(this.other, theirs), at(this.model, state)];
    const names = [...new Set([...before.keys(), ...after.keys()])];
    const changes = names
      .map((name) => ({ name, before: before.get(name) ?? 0, after: after.get(name) ?? 0 }))
      .filter((entry) => entry.before !== entry.after)
      .sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before));
    if (!changes.length) return [element("p", { text: "At the peak, the same tensors are in memory, with the same sizes." })];
    const body = changes.slice(0, SHOWN).map((entry) => {
      const by = entry.after - entry.before;
      return element(
        "tr",
        {},
        element("th", { scope: "row", class: "name", text: entry.name }),
        element("td", { class: "number", text: entry.before ? bytes(entry.before) : "not in memory" }),
        element("td", { class: "number", text: entry.after ? bytes(entry.after) : "not in memory" }),
        element("td", { class: "number", title: exactly(by), text: `${by > 0 ? "+" : ""}${bytes(by)}` }),
      );
    });
    const titles = ["Tensor at the peak", "before", "after", "change"];
    const head = titles.map((text, k) => element("th", { scope: "col", class: k ? "number" : "", text }));
    const rest = changes.length - body.length;
    return [
      element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body))),
      ...(rest > 0 ? [element("p", { class: "note", text: `and ${count(rest)} smaller changes` })] : []),
    ];
  }
}
