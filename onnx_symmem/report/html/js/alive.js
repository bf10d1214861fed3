// What is in memory at a moment: a picture with areas to scale, and a table.

import { OUTPUT } from "./model.js";
import { bytes, drawn, element, exactly, formula, share } from "./words.js";

const SHOWN = 25;
const BOXES = 60;
const HEIGHT = 190;

export class Alive {
  constructor(place, model, picked) {
    this.model = model;
    this.picked = picked;
    this.all = false;
    this.picture = drawn("svg", { class: "boxes", height: HEIGHT, role: "img" });
    this.body = element("tbody");
    this.more = element("button", { type: "button", class: "quiet", onclick: () => this.toggle() });
    const titles = ["Tensor", "Made by", "Size", "Share", "Size as a formula", "In memory"];
    const head = titles.map((text) => element("th", { scope: "col", text, class: ["Size", "Share"].includes(text) ? "number" : "" }));
    this.table = element(
      "table",
      {},
      element("caption", { class: "hidden", text: "Tensors in memory at the chosen moment, the largest first" }),
      element("thead", {}, element("tr", {}, ...head)),
      this.body,
    );
    place.append(this.picture, element("div", { class: "scroll" }, this.table), this.more);
  }

  measure() {
    this.width = Math.max(this.picture.parentElement.clientWidth, 320);
  }

  toggle() {
    this.all = !this.all;
    this.draw(this.row, this.state);
  }

  draw(row, state) {
    [this.row, this.state] = [row, state];
    const alive = this.model.alive(row, state);
    const whole = state.inUse[row] ?? 0;
    this.paint(alive, whole);
    const shown = this.all ? alive : alive.slice(0, SHOWN);
    this.body.replaceChildren(...shown.map((entry) => this.line(entry, whole)));
    if (!alive.length) {
      this.body.replaceChildren(element("tr", {}, element("td", { colspan: 6, text: "nothing is in memory at this moment" })));
    }
    const rest = alive.slice(SHOWN);
    this.more.hidden = !rest.length;
    const size = rest.reduce((sum, entry) => sum + Number(entry.bytes), 0);
    this.more.textContent = this.all ? "Show fewer" : `Show ${rest.length} more, ${bytes(size)} together`;
    return alive;
  }

  line({ tensor, span, bytes: size }, whole) {
    const { tensors, spans } = this.model.data;
    const part = whole ? Number(size) / whole : 0;
    const name = element("button", { type: "button", class: "link", text: tensors.name[tensor], onclick: () => this.picked(tensor) });
    const maker = tensors.made[tensor] >= 0 ? this.model.nodeLabel(tensors.made[tensor]) : "";
    return element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, name, tensors.scope[tensor] === OUTPUT ? element("span", { class: "tag outputs", text: "output" }) : ""),
      element("td", { class: "maker", text: maker }),
      element("td", { class: "number", title: exactly(size), text: bytes(size) }),
      element(
        "td",
        { class: "number share", style: `--part:${(part * 100).toFixed(2)}%` },
        element("span", { text: share(size, whole) }),
      ),
      element("td", { class: "cell-formula" }, tensors.size[tensor] < 0 ? "unknown" : formula(this.model.table, tensors.size[tensor])),
      element("td", { class: "life" }, this.lifetime(spans.from[span], spans.to[span])),
    );
  }

  // A small bar over the whole run.
  lifetime(from, to) {
    const { before, rows: seen } = this.model.run;
    const [first, next] = [before[from], before[to]];
    const step = (place) => this.model.step(seen[place]);
    const words = next >= seen.length ? `from step ${step(first)} to the end` : `steps ${step(first)} to ${step(next - 1)}`;
    const svg = drawn("svg", { class: "life-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": words });
    const [a, width] = [(first / seen.length) * 100, Math.max(((next - first) / seen.length) * 100, 1.2)];
    svg.append(
      drawn("title", { text: words }),
      drawn("rect", { class: "life-ground", x: 0, y: 3, width: 100, height: 2 }),
      drawn("rect", { class: "life-span", x: Math.min(a, 98.8), y: 0, width, height: 8 }),
    );
    return svg;
  }

  paint(alive, whole) {
    const { width } = this;
    const { tensors } = this.model.data;
    const seen = alive.filter((entry) => entry.bytes > 0);
    const boxes = seen.slice(0, BOXES).map((entry) => ({ ...entry, area: Number(entry.bytes) }));
    const rest = seen.slice(BOXES).reduce((sum, entry) => sum + Number(entry.bytes), 0);
    if (rest) boxes.push({ tensor: -1, bytes: rest, area: rest, many: seen.length - BOXES });
    const parts = placed(boxes, width, HEIGHT).map(({ box, x, y, w, h }) => {
      const name = box.tensor < 0 ? `${box.many} more` : tensors.name[box.tensor];
      const scope = box.tensor < 0 ? "rest" : tensors.scope[box.tensor] === OUTPUT ? "outputs" : "activations";
      const group = drawn("g", { class: "box" }, drawn("title", { text: `${name}: ${bytes(box.bytes)}, ${share(box.bytes, whole)}` }));
      group.append(drawn("rect", { class: `area ${scope}`, x: x + 0.75, y: y + 0.75, width: Math.max(w - 1.5, 0.5), height: Math.max(h - 1.5, 0.5), rx: 2 }));
      if (w > 58 && h > 34) {
        const room = Math.floor((w - 12) / 7.6);
        group.append(drawn("text", { class: `box-name ${scope}`, x: x + 7, y: y + 16, text: shortened(name, room) }));
        group.append(drawn("text", { class: `box-size ${scope}`, x: x + 7, y: y + 30, text: bytes(box.bytes) }));
      }
      if (box.tensor >= 0) group.addEventListener("click", () => this.picked(box.tensor));
      return group;
    });
    this.picture.setAttribute("width", width);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const largest = seen.slice(0, 3).map((entry) => `${tensors.name[entry.tensor]} ${bytes(entry.bytes)}`);
    this.picture.setAttribute("aria-label", `Sizes to scale. Largest: ${largest.join(", ") || "none"}. The table below has all.`);
    this.picture.replaceChildren(...parts);
  }
}

// The end of a name tells more than its beginning.
function shortened(name, room) {
  return name.length <= room ? name : `…${name.slice(name.length - Math.max(room - 1, 1))}`;
}

// Rectangles of given areas that fill a box, as square as they come: each strip is filled while that helps.
export function placed(boxes, width, height) {
  const total = boxes.reduce((sum, box) => sum + box.area, 0);
  if (!total) return [];
  const scale = (width * height) / total;
  boxes = boxes.filter((box) => box.area * scale > 0.01); // nothing to be seen of the others
  const found = [];
  let [x, y, w, h] = [0, 0, width, height];
  let k = 0;
  while (k < boxes.length) {
    const side = Math.min(w, h);
    const strip = [];
    let area = 0;
    let worst = Infinity;
    while (k < boxes.length) {
      const next = boxes[k].area * scale;
      const thick = (area + next) / side;
      const sizes = [...strip.map((box) => box.area * scale), next];
      const ratio = Math.max(...sizes.map((size) => Math.max((thick * thick) / size, size / (thick * thick))));
      if (strip.length && ratio > worst) break;
      worst = ratio;
      area += next;
      strip.push(boxes[k]);
      k += 1;
    }
    const thick = area / side;
    let along = 0;
    for (const box of strip) {
      const length = (box.area * scale) / thick;
      found.push(w < h ? { box, x: x + along, y, w: length, h: thick } : { box, x, y: y + along, w: thick, h: length });
      along += length;
    }
    if (w < h) [y, h] = [y + thick, h - thick];
    else [x, w] = [x + thick, w - thick];
  }
  return found;
}
