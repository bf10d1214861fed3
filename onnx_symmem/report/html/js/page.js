// The page: reads its data, and draws everything anew whenever a size, a moment or an option changes.

import { Alive } from "./alive.js";
import { Controls } from "./controls.js";
import { evaluated, narrowed, plus } from "./exact.js";
import { GrowthTable } from "./growth.js";
import { ShapeMap } from "./map.js";
import { Model } from "./model.js";
import { Pairs } from "./pairs.js";
import { Search } from "./search.js";
import { Timeline } from "./timeline.js";
import { bytes, change, count, element, exactly, formula, parseBytes, pythonText, share, versionText } from "./words.js";

const place = (id) => document.getElementById(id);
const FEW = 8; // formulas shown at first, where there are many
const LABELS = { exact: "exact", bound: "upper bound", unknown: "not everything is counted" };

class Page {
  constructor(data) {
    this.data = data;
    this.model = new Model(data.model);
    this.other = data.against ? new Model(data.against) : null;
    this.picked = null;
    this.few = true;
    this.due = 0;
    const changed = () => this.ask();
    const own = new Set(data.model.domain.free.map((range) => range.name).concat(data.model.domain.tied.map(([name]) => name)));
    const others = (data.against?.domain.free ?? []).filter((range) => !own.has(range.name));
    this.controls = new Controls(place("dials"), this.model, data.shapes, data.shapes[data.start] ?? {}, others, changed);
    this.presets();
    this.pairs = this.other ? new Pairs(this.model, this.other) : null;
    this.timeline = new Timeline(place("timeline"), this.model, changed, this.pairs);
    this.alive = new Alive(place("alive"), this.model, (tensor) => this.pick({ tensor }));
    this.map = new ShapeMap(place("map"), this.model, this.controls, changed);
    this.growth = this.other ? new GrowthTable(place("growth"), this.model, this.other) : null;
    this.search = new Search(place("find"), place("found"), place("found-count"), place("card"), this.model, (entry) => this.pick(entry));
    this.options();
    this.formulas();
    this.fromAddress();
    this.measure();
    this.draw();
    window.addEventListener("resize", () => {
      this.measured = false;
      this.ask();
    });
  }

  measure() {
    for (const part of [this.timeline, this.alive, this.map]) part.measure();
    this.measured = true;
  }

  presets() {
    const { shapes } = this.data;
    const text = (shape) => Object.entries(shape).map(([name, size]) => `${name} ${count(size)}`).join(", ");
    const options = shapes.map((shape, k) => element("option", { value: k, text: text(shape) }));
    const select = place("preset");
    select.append(...options);
    select.addEventListener("change", () => {
      if (select.value !== "") this.controls.set(shapes[Number(select.value)]);
      select.value = "";
    });
    if (shapes.length < 2 || !this.controls.dials.length) select.closest("label").hidden = true;
    if (!this.controls.dials.length) {
      place("dials").append(element("p", { class: "note", text: "The inputs have no symbolic dims: there is one shape." }));
    }
  }

  options() {
    const toggles = [...document.querySelectorAll("[data-scope]")];
    for (const box of toggles) {
      const scope = Number(box.dataset.scope);
      box.addEventListener("change", () => {
        if (box.checked) this.timeline.shown.add(scope);
        else this.timeline.shown.delete(scope);
        this.ask();
      });
    }
    // Weights that dwarf everything else would flatten what the page is about.
    const first = this.model.at(this.model.shape(this.controls.chosen()));
    if (first && Number(first.weights) > 3 * Number(first.peak)) {
      const box = toggles.find((toggle) => toggle.dataset.scope === "0");
      box.checked = false;
      this.timeline.shown.delete(0);
    }
    if (this.data.model.versions) place("way").append(element("option", { value: "version", text: "which version runs" }));
    if (this.data.model.versions?.policy === "fits") place("limit").addEventListener("input", () => this.ask());
    for (const id of ["way", "outside"]) place(id).addEventListener("change", () => this.ask());
    place("budget").addEventListener("input", () => {
      if (place("way").value === "peak" && parseBytes(place("budget").value) !== null) place("way").value = "fits";
      this.ask();
    });
    place("aligned")?.addEventListener("change", (event) => {
      this.timeline.aligned = event.target.checked;
      this.ask();
    });
    place("to-peak").addEventListener("click", () => this.timeline.go(null));
    place("zoom-in").addEventListener("click", () => this.timeline.zoom(0.5, this.row));
    place("zoom-out").addEventListener("click", () => this.timeline.zoom(2, this.row));
    place("zoom-all").addEventListener("click", () => this.timeline.zoom(this.timeline.many, this.row));
    place("all-members").addEventListener("click", () => {
      this.few = !this.few;
      this.ask();
    });
    place("copy").addEventListener("click", () => this.copy());
  }

  get row() {
    return this.timeline.row ?? this.state.peakRow;
  }

  ask() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => {
      this.due = 0;
      this.draw();
    });
  }

  draw() {
    const start = performance.now();
    if (!this.measured) this.measure();
    const made = this.model.shape(this.controls.chosen());
    if (this.data.model.versions?.policy === "fits") {
      this.model.limit = parseBytes(place("limit").value) ?? this.data.model.versions.limit;
    }
    const state = this.model.at(made);
    this.made = made;
    this.state = state;
    this.controls.follow(made);
    const chosen = { ...this.controls.chosen(), ...made.shape };
    this.theirs = null;
    if (this.other) {
      const same = this.other.shape(chosen);
      const wrong = Object.keys(same.shape).filter((name) => own(this.other, name) && chosen[name] !== undefined && chosen[name] !== same.shape[name]);
      same.problems.push(...wrong.map((name) => `${name} would have to be ${same.shape[name]}`));
      this.theirs = { ...same, state: this.other.at(same) };
    }
    place("problems").replaceChildren(...made.problems.map((text) => element("p", { class: "warning", text: `No run takes this shape: ${text}.` })));
    this.summary(state);
    const theirs = this.theirs && this.theirs.state && !this.theirs.problems.length ? { model: this.other, state: this.theirs.state } : null;
    if (this.model.rows) {
      this.timeline.lifetime = this.lifetimes();
      this.timeline.draw(state, theirs);
      this.moment(state);
    }
    const budget = parseBytes(place("budget").value);
    const typed = place("budget").value.trim();
    place("budget-note").textContent = budget === null && typed ? "expected a size such as 24GiB, 24GB or 25769803776" : budget === null ? "" : exactly(budget);
    this.map.draw({ way: place("way").value, budget, outside: place("outside").checked });
    this.versions(made);
    this.growth?.draw(state, this.theirs.state, this.theirs.problems);
    this.members(state);
    this.coverage(state);
    this.search.show(this.picked, state);
    this.toAddress();
    this.tell();
    this.took = performance.now() - start;
  }

  // ------------------------------------------------------------------------------------ the pieces

  summary(state) {
    const { label } = this.model;
    const rows = [
      ["weights", "Weights", state.weights],
      ["inputs", "Inputs", state.inputs],
      ["outputs", "Outputs at the peak", state.outputsAt(state.peakRow)],
      ["activations", "Activations at the peak", plus(state.peak, -state.outputsAt(state.peakRow))],
    ];
    place("peak").textContent = bytes(state.peak);
    place("peak-exact").textContent = exactly(state.peak);
    const largest = this.made.data.filter((entry) => this.controls.chosen()[entry.name] === undefined).map((entry) => entry.name);
    const free = this.made.data.filter((entry) => entry.most === null).map((entry) => entry.name);
    place("peak-label").textContent = LABELS[label] + (largest.length ? ", data at its largest" : "");
    const { branchText } = this.model;
    place("data-note").replaceChildren(
      ...(branchText ? [`At this shape runs ${branchText}. `] : []),
      ...(largest.length > free.length ? [`Data decides ${largest.filter((name) => !free.includes(name)).join(", ")}: taken as large as ${largest.length - free.length > 1 ? "they" : "it"} can be. `] : []),
      ...(free.length ? [`Nothing limits ${free.join(", ")}: set at the left, the figures hold for that size.`] : []),
    );
    place("total").textContent = bytes(state.total);
    place("total-exact").textContent = exactly(state.total);
    const least = state.bound === null ? "" : bytes(state.bound);
    place("least").textContent = least || "not known";
    const above = state.bound === null ? "" : change(state.peak, state.bound);
    place("least-note").textContent = above === "unchanged" ? "the peak is as low as any order can get" : above ? `the peak is ${above.replace("+", "")} above it` : "";
    place("scopes").replaceChildren(
      ...rows.map(([scope, name, size]) =>
        element(
          "div",
          {},
          element("dt", {}, element("span", { class: `swatch ${scope}`, "aria-hidden": "true" }), name),
          element("dd", { title: exactly(size), tabindex: 0, text: bytes(size) }),
        ),
      ),
    );
    const theirs = this.theirs?.state && !this.theirs.problems.length ? this.theirs.state : null;
    place("against-figure").hidden = !theirs;
    if (theirs) {
      place("their-peak").textContent = bytes(theirs.peak);
      place("their-change").textContent = change(state.peak, theirs.peak);
      place("their-exact").textContent = exactly(theirs.peak);
    }
  }

  moment(state) {
    const row = this.row;
    const alive = this.alive.draw(row, state);
    const step = count(this.model.step(row));
    const isPeak = row === state.peakRow;
    const inUse = state.inUseAt(row);
    place("moment").replaceChildren(
      element("strong", { text: `Step ${step}` }),
      ` of ${count(this.model.steps)}: ${this.model.nodeLabel(row)} – `,
      element("strong", { title: exactly(inUse), text: bytes(inUse) }),
      isPeak ? " in use, the peak" : ` in use, ${share(inUse, state.peak)} of the peak`,
      this.elsewhere(row),
    );
    place("alive-title").textContent = isPeak ? "In memory at the peak" : `In memory at step ${step}`;
    place("alive-note").textContent = `${count(alive.length)} ${alive.length === 1 ? "tensor" : "tensors"}, ${bytes(inUse)}; areas are to scale`;
    place("to-peak").disabled = isPeak;
  }

  // Where the same node is in the run of the model that this one is held against.
  elsewhere(row) {
    if (!this.theirs?.state || this.theirs.problems.length) return "";
    const { title } = this.other.data;
    const theirs = this.pairs.of(row);
    if (theirs === null) return `. Not in ${title}`;
    const step = this.other.step(theirs);
    return `. In ${title}: step ${count(step)} of ${count(this.other.steps)}, ${bytes(this.theirs.state.inUseAt(theirs))} in use`;
  }

  lifetimes() {
    if (!this.picked) return [];
    const { spans, tensors } = this.data.model;
    if (this.picked.row !== undefined) return [{ from: this.picked.row, to: this.picked.row + 1 }];
    const owner = tensors.in[this.picked.tensor] >= 0 ? tensors.in[this.picked.tensor] : this.picked.tensor;
    return (this.model.spanOf.get(owner) ?? []).map((k) => ({ from: spans.from[k], to: spans.to[k] }));
  }

  pick(entry) {
    this.picked = entry;
    if (entry?.row !== undefined && this.model.run.rows.includes(entry.row)) this.timeline.go(entry.row);
    this.draw();
    if (entry) place("card").scrollIntoView({ block: "nearest" });
  }

  formulas() {
    const members = this.model.membersOf(this.model.version);
    this.listed = this.model.version;
    place("members-note").textContent =
      members.length > 1
        ? `The peak is the largest of these ${members.length}; each is the bytes in use at one moment, and no other moment is ever above all of them.`
        : "One formula holds for every shape.";
    if (this.model.branchText) place("members-note").textContent += ` That is where ${this.model.branchText} runs.`;
    this.lines = members.map(([expr, row]) => {
      const value = element("td", { class: "number" });
      const mark = element("td", { class: "mark" });
      const step = this.model.rows ? this.model.step(row) : 0;
      const where = step ? `step ${count(step)}, ${this.model.nodeLabel(row)}` : "";
      const go = where ? element("button", { type: "button", class: "link", text: where, onclick: () => this.timeline.go(row) }) : "";
      const line = element("tr", {}, mark, element("td", { class: "cell-formula wide" }, formula(this.model.table, expr), element("div", { class: "where" }, go)), value);
      return { line, value, mark };
    });
    place("members").replaceChildren(...this.lines.map(({ line }) => line));
    place("all-members").hidden = members.length <= FEW + 2;
  }

  members(state) {
    if (this.listed !== this.model.version) this.formulas();
    const few = this.few && this.lines.length > FEW + 2;
    place("all-members").textContent = few ? `Show all ${this.lines.length}` : `Show the ${FEW} largest here`;
    const falling = [...state.members].sort((a, b) => (a < b ? 1 : a > b ? -1 : 0));
    const most = falling[0];
    const least = few ? falling[FEW - 1] : falling.at(-1);
    this.lines.forEach(({ line, value, mark }, k) => {
      const size = state.members[k];
      const isPeak = size === most;
      value.textContent = bytes(size);
      value.title = exactly(size);
      line.classList.toggle("is-peak", isPeak);
      line.hidden = size < least;
      mark.textContent = isPeak ? "▲ peak here" : "";
    });
  }

  // Which version runs here, of a model that holds several.
  versions(made) {
    const { versions } = this.data.model;
    if (!versions) return;
    const { version } = this.model;
    const peaks = versions.list.map(({ peak }) =>
      evaluated(this.model.table, made.sizes, (at) => peak.map((expr) => narrowed(at.expr(expr))).reduce((a, b) => (b > a ? b : a))),
    );
    const planned = evaluated(this.model.table, made.sizes, (at) => this.model.isPlanned(at));
    place("unplanned").textContent = planned ? "" : `This shape was not planned: outside those that were, version ${version} runs.`;
    const named = (names) => (names.length > 6 ? `${names.slice(0, 6).join(", ")} and ${count(names.length - 6)} more` : names.join(", ")) || "–";
    place("versions").replaceChildren(
      ...versions.list.map(({ name, recomputed, offloaded }, k) =>
        element(
          "tr",
          { class: k === version ? "is-peak" : "" },
          element("th", { scope: "row", text: versionText(k, name) }),
          element("td", { class: "mark", text: k === version ? "▲ runs here" : "" }),
          element("td", { class: "number", title: exactly(peaks[k]), text: bytes(peaks[k]) }),
          element("td", { text: named(recomputed) }),
          element("td", { text: named(offloaded) }),
        ),
      ),
    );
  }

  coverage(state) {
    const { reasons } = this.data.model;
    const { label } = this.model;
    const { table } = this.model;
    const where = { bound: "upper bound: the larger branch, the largest iteration", unknown: "without what is listed below" };
    const said = where[label] ?? "exact, to the byte";
    const outside = label === "unknown" ? "without what is listed below" : "exact";
    const rows = [
      ["Weights", [formula(table, this.data.model.weights)], bytes(state.weights), outside],
      ["Inputs", [formula(table, this.data.model.inputs)], bytes(state.inputs), outside],
      ["Outputs and activations", ["the peak's formulas"], bytes(state.peak), said],
      ["Scratch memory of kernels", ["–"], "–", "not modelled"],
      ["Gaps and rounding in the arena", ["–"], "–", "not modelled"],
      ["Copies of weights laid out for kernels", ["–"], "–", "not modelled"],
      ["Later runs of a session with a memory pattern", ["–"], "–", "not modelled: they hold one block, larger than the peak"],
    ];
    place("coverage").replaceChildren(
      ...rows.map(([name, how, size, what]) =>
        element(
          "tr",
          {},
          element("th", { scope: "row", text: name }),
          element("td", { class: "cell-formula" }, ...how),
          element("td", { class: "number", text: size }),
          element("td", { text: what }),
        ),
      ),
    );
    place("reasons").replaceChildren(...reasons.map((text) => element("li", { text })));
    place("reasons-part").hidden = !reasons.length;
  }

  async copy() {
    const texts = this.model.membersOf(this.model.version).map(([expr]) => pythonText(this.model.table, expr));
    const text = texts.length > 1 ? `max(${texts.join(", ")})` : texts[0];
    try {
      await navigator.clipboard.writeText(text);
      place("copied").textContent = "copied";
    } catch {
      const area = element("textarea", { class: "copy-text", rows: 4, readonly: true, "aria-label": "The peak in Python syntax" });
      area.value = text;
      place("copied").replaceChildren(area);
      area.select();
    }
  }

  // ------------------------------------------------------------------------------------ outside the page

  // Said once the sizes rest, not at every step of a slider.
  tell() {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const sizes = Object.entries(this.made.shape).map(([name, size]) => `${name} ${count(size)}`);
      const step = this.model.step(this.state.peakRow);
      const where = this.model.rows ? `, at step ${count(step)}, ${this.model.nodeLabel(this.state.peakRow)}` : "";
      place("said").textContent = `${sizes.join(", ")}: peak ${bytes(this.state.peak)}${where}`;
    }, 400);
  }

  fromAddress() {
    const sizes = {};
    for (const [name, size] of new URLSearchParams(location.hash.slice(1))) {
      if (/^[0-9]{1,15}$/.test(size)) sizes[name] = Number(size);
    }
    for (const dial of this.controls.dials) if (sizes[dial.range.name] !== undefined) dial.show(sizes[dial.range.name]);
  }

  toAddress() {
    const sizes = this.controls.dials.map((dial) => [dial.range.name, String(dial.size)]);
    clearTimeout(this.noting);
    this.noting = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${new URLSearchParams(sizes)}`);
      } catch {
        // Browsers limit how often; the address is a convenience.
      }
    }, 250);
  }
}

function own(model, name) {
  return model.data.domain.tied.some(([tied]) => tied === name);
}

window.page = new Page(JSON.parse(place("data").textContent));
document.documentElement.classList.add("ready");
