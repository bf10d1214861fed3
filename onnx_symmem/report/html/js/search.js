// Find a tensor or a node by a part of its name; one that is picked shows its dims, size and lifetime.

import { INPUT, SCOPES, WEIGHT } from "./model.js";
import { bytes, count, element, exactly, formula } from "./words.js";

const MOST = 12;
const KINDS = { weight: "weight", input: "input", output: "output", activation: "activation", host: "in the CPU's memory", none: "" };

export class Search {
  constructor(field, list, status, card, model, picked) {
    Object.assign(this, { field, list, status, card, model, picked });
    const { tensors, rows } = model.data;
    this.entries = [
      ...tensors.name.map((name, tensor) => ({ name, tensor })),
      ...rows.name.map((_, row) => ({ name: model.nodeLabel(row), row })),
    ].map((entry) => ({ ...entry, key: entry.name.toLowerCase() }));
    field.addEventListener("input", () => this.look());
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      if (event.key === "ArrowDown") this.list.querySelector("button")?.focus();
      if (event.key === "Enter") this.list.querySelector("button")?.click();
    });
    list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") this.close();
      if (!step) return;
      event.preventDefault();
      const buttons = [...this.list.querySelectorAll("button")];
      const next = buttons.indexOf(document.activeElement) + step;
      (buttons[next] ?? (next < 0 ? this.field : buttons.at(-1))).focus();
    });
  }

  close() {
    this.field.value = "";
    this.look();
    this.field.focus();
  }

  look() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? this.entries.filter(({ key }) => words.every((word) => key.includes(word))) : [];
    // Names that begin or end with what was typed come first.
    const rank = ({ key }) => (key === words[0] ? 0 : key.startsWith(words[0]) || key.endsWith(words[0]) ? 1 : 2);
    found.sort((a, b) => rank(a) - rank(b));
    this.list.replaceChildren(...found.slice(0, MOST).map((entry) => element("li", {}, this.button(entry))));
    const many = found.length > MOST ? `, ${MOST} are shown` : "";
    this.status.textContent = words.length ? `${count(found.length)} found${many}` : "";
  }

  button(entry) {
    const kind = entry.row === undefined ? KINDS[SCOPES[this.model.data.tensors.scope[entry.tensor]]] || "tensor" : "node";
    return element(
      "button",
      { type: "button", onclick: () => this.picked(entry) },
      element("span", { class: "kind", text: kind }),
      entry.name,
    );
  }

  // The card of what is picked: {tensor} or {row}; null clears it.
  show(entry, state) {
    this.card.hidden = entry === null;
    if (entry === null) return;
    const rows = entry.row === undefined ? this.tensor(entry.tensor, state) : this.node(entry.row, state);
    const close = element("button", { type: "button", class: "quiet", text: "Close", onclick: () => this.picked(null) });
    const title = entry.row === undefined ? this.model.data.tensors.name[entry.tensor] : this.model.nodeLabel(entry.row);
    const list = element("dl", {}, ...rows.flatMap(([term, ...said]) => [element("dt", { text: term }), element("dd", {}, ...said)]));
    this.card.replaceChildren(element("div", { class: "card-head" }, element("h3", { text: title }), close), list);
  }

  tensor(tensor, state) {
    const { model } = this;
    const { tensors, types } = model.data;
    const dims = model.dims(tensor);
    const scope = tensors.scope[tensor];
    const owner = tensors.in[tensor];
    const rows = [];
    const kind = KINDS[SCOPES[scope]];
    if (kind) rows.push(["Counts as", kind]);
    if (owner >= 0) rows.push(["Memory", "none of its own: lies in that of ", this.link(owner)]);
    rows.push(["Dims", ...(dims ? [...listed(dims.map((dim) => formula(model.table, dim))), ` = [${dims.map((dim) => count(state.size(dim))).join(", ")}]`] : ["unknown"])]);
    if (types[tensors.type[tensor]]) rows.push(["Type", types[tensors.type[tensor]]]);
    const size = tensors.size[tensor];
    if (size < 0) rows.push(["Size", "unknown"]);
    else rows.push(["Size", element("strong", { text: bytes(state.size(size)) }), ` = ${exactly(state.size(size))}`], ["Size as a formula", formula(model.table, size)]);
    if (tensors.made[tensor] >= 0) rows.push(["Made by", this.step(tensors.made[tensor])]);
    rows.push(["In memory", this.life(tensor, scope)]);
    return rows;
  }

  life(tensor, scope) {
    const { model } = this;
    const { spans, tensors } = model.data;
    if (scope === WEIGHT || scope === INPUT) return "all the time";
    const owner = tensors.in[tensor] >= 0 ? tensors.in[tensor] : tensor;
    const found = (model.spanOf.get(owner) ?? []).map((k) => {
      const [from, to] = [spans.from[k], spans.to[k]];
      const { before, rows: seen } = model.run;
      if (before[from] === before[to]) return model.data.versions ? "never in this version" : "not in the branches that run";
      const end = before[to] >= seen.length ? "the end" : count(model.step(seen[before[to] - 1]));
      return `step ${count(model.step(seen[before[from]]))} to ${end}`;
    });
    return found.length ? [...new Set(found)].join("; ") + (owner === tensor ? "" : " (the memory it lies in)") : "never of its own";
  }

  node(row, state) {
    const { model } = this;
    const { tensors, spans } = model.data;
    const made = tensors.made.flatMap((at, tensor) => (at === row ? [tensor] : []));
    const freed = spans.to.flatMap((to, k) => (to === row + 1 ? [spans.tensor[k]] : []));
    const links = (list) => (list.length ? listed(list.slice(0, 8).map((tensor) => this.link(tensor)), "", "") : ["nothing"]);
    return [
      ["Step", count(model.step(row)), ` of ${count(model.steps)}`],
      ["In use after it ran", element("strong", { text: bytes(state.inUseAt(row)) }), ` = ${exactly(state.inUseAt(row))}`],
      ["Makes", ...links(made)],
      ["Freed after it", ...links([...new Set(freed)])],
    ];
  }

  link(tensor) {
    const { tensors } = this.model.data;
    return element("button", { type: "button", class: "link", text: tensors.name[tensor], onclick: () => this.picked({ tensor }) });
  }

  step(row) {
    return element("button", { type: "button", class: "link", text: this.model.nodeLabel(row), onclick: () => this.picked({ row }) });
  }
}

function listed(parts, open = "[", close = "]") {
  return [open, ...parts.flatMap((part, k) => (k ? [", ", part] : [part])), close];
}
