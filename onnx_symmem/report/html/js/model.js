// One model at a shape: the sizes of its tensors, bytes in use per row, and the peak.

import { evaluated, narrowed, plus, runningSum } from "./exact.js";
import { factText } from "./words.js";

export const SCOPES = ["weight", "input", "output", "activation", "host", "none"];
export const [WEIGHT, INPUT, OUTPUT, ACTIVATION] = [0, 1, 2, 3];

export class Model {
  constructor(data) {
    this.data = data;
    this.table = data.formulas;
    this.number = new Map(this.table.symbols.map((name, index) => [name, index]));
    const { spans, tensors } = data;
    this.rows = data.rows.step.length;
    this.limit = data.versions?.limit ?? null;
    // What a run may be: one of several versions, or of the ways through the branches that shapes decide.
    this.ways = (data.versions ?? data.branches)?.list ?? null;
    this.runs = (this.ways ?? [null]).map((_, version) => this.rowsOf(version));
    this.version = 0;
    this.spanSizes = spans.tensor.map((tensor) => tensors.size[tensor]);
    this.outputSpans = spans.tensor.flatMap((tensor, k) => (tensors.scope[tensor] === OUTPUT ? [k] : []));
    this.spanOf = new Map();
    spans.tensor.forEach((tensor, k) => {
      if (!this.spanOf.has(tensor)) this.spanOf.set(tensor, []);
      this.spanOf.get(tensor).push(k);
    });
  }

  // Of a model that may run in several ways, the rows of one: `rows` in order, and how many are `before` a row.
  rowsOf(version) {
    const { first, last, branch } = this.data.rows;
    const passes = (row) => {
      if (first) return first[row] <= version && version <= last[row];
      return !branch || branch[row] < 0 || ((version >> (branch[row] >> 1)) & 1) === (branch[row] & 1);
    };
    const rows = [];
    const before = new Int32Array(this.rows + 1);
    for (let row = 0; row < this.rows; row += 1) {
      before[row] = rows.length;
      if (passes(row)) rows.push(row);
    }
    before[this.rows] = rows.length;
    return { rows, before };
  }

  // How good the numbers are: of the version or the branches that run, where there are several.
  get label() {
    return this.ways ? this.ways[this.version].label : this.data.label;
  }

  get run() {
    return this.runs[this.version];
  }

  get steps() {
    return this.data.versions ? this.run.rows.length : this.data.nodes;
  }

  // The number of a row's step, from 1.
  step(row) {
    return this.data.versions ? this.run.before[row] + 1 : (this.data.rows.step[row] ?? -1) + 1;
  }

  // Whether a shape is among those that the versions were planned for.
  isPlanned(at) {
    return this.data.versions.planned.every((fact) => at.expr(fact) >= 0);
  }

  // Which version runs, as the guard in the model has it, or the number of the way through the branches.
  chosen(at) {
    if (this.data.branches) {
      return this.data.branches.conditions.reduce((way, condition, k) => way + (Number(at.expr(condition)) ? 0 : 1 << k), 0);
    }
    const { policy, list, outside, compared } = this.data.versions;
    if (!this.isPlanned(at)) return outside;
    const most = (peak) => peak.map((expr) => at.expr(expr)).reduce((a, b) => (b > a ? b : a));
    const peaks = list.slice(0, compared).map(({ peak }) => most(peak));
    const fits = (peak) => policy === "fits" && (this.limit === null || peak <= this.limit);
    const least = peaks.reduce((a, b) => (b < a ? b : a));
    // A last version of which only data tells the peak runs where no other fits.
    const found = peaks.findIndex((peak) => fits(peak) || (compared === list.length && peak === least));
    return found < 0 ? list.length - 1 : found;
  }

  // The formulas whose largest is the peak, of what runs: [expression, row].
  membersOf(version) {
    return this.ways ? this.ways[version].members : this.data.members;
  }

  // The formulas whose largest no order of the nodes is below, of the version that runs.
  boundOf(version) {
    return this.data.versions ? this.data.versions.list[version].bound : this.data.bound;
  }

  // All sizes at the chosen ones: those that follow from others, and what data decides, at its largest
  // unless chosen. `chosen` is by name; `problems` say which facts the shape breaks.
  shape(chosen) {
    const { domain } = this.data;
    const sizes = new Array(this.table.symbols.length);
    const shape = {};
    const problems = [];
    const set = (name, size) => {
      shape[name] = size;
      const at = this.number.get(name);
      if (at !== undefined) sizes[at] = size;
    };
    const value = (expr) => evaluated(this.table, sizes, (at) => at.expr(expr));
    for (const { name, lo, hi, divisor } of domain.free) {
      const size = chosen[name] ?? lo;
      set(name, size);
      if (size < lo || (hi !== null && size > hi) || size % divisor) {
        problems.push(`${name} = ${size} is outside ${rangeText({ lo, hi, divisor })}`);
      }
    }
    for (const [name, expr] of domain.tied) set(name, Number(value(expr) ?? 0));
    for (const { name, lo, hi, divisor } of domain.ranges) {
      if (shape[name] < lo || (hi !== null && shape[name] > hi) || shape[name] % divisor) {
        problems.push(`${name} = ${shape[name]} is outside ${rangeText({ lo, hi, divisor })}`);
      }
    }
    const data = domain.data.map((entry) => {
      const bounds = entry.bounds.map(value).filter((bound) => bound !== null);
      if (entry.hi !== null) bounds.push(entry.hi);
      const most = bounds.length ? Number(bounds.reduce((a, b) => (b < a ? b : a))) : null;
      const size = chosen[entry.name] ?? most ?? Math.max(entry.lo, 1024);
      set(entry.name, size);
      if (most !== null && size > most) problems.push(`${entry.name} = ${size} is more than ${most}`);
      return { ...entry, most, size };
    });
    for (const fact of domain.facts) {
      const found = value(fact);
      if (found !== null && found < 0) problems.push(`${factText(this.table, fact)} does not hold`);
    }
    return { shape, sizes, data, problems: [...new Set(problems)] };
  }

  // Everything at a shape that `shape` has made.
  at({ sizes }) {
    const { data } = this;
    const { spans } = data;
    return evaluated(this.table, sizes, (at) => {
      if (this.ways) this.version = this.chosen(at);
      const size = (expr) => (expr < 0 ? 0 : at.expr(expr));
      const spanBytes = this.spanSizes.map(size);
      const all = runningSum(this.rows, spans.from, spans.to, spanBytes, this.run.rows);
      const some = (column) => this.outputSpans.map((k) => column[k]);
      const outputs = runningSum(this.rows, some(spans.from), some(spans.to), some(spanBytes));
      const members = this.membersOf(this.version).map(([expr]) => at.expr(expr));
      const bound = evaluated(this.table, sizes, (of) => {
        return this.boundOf(this.version).map((expr) => narrowed(of.expr(expr))).reduce((a, b) => (a === null || b > a ? b : a), null);
      });
      const weights = narrowed(at.expr(data.weights));
      const inputs = narrowed(at.expr(data.inputs));
      const peak = narrowed(all.most);
      return {
        size: (expr) => {
          try {
            return size(expr);
          } catch {
            return evaluated(this.table, sizes, (of) => narrowed(of.expr(expr))) ?? 0;
          }
        },
        members: members.map(narrowed),
        inUse: all.rows,
        outputs: outputs.rows,
        inUseAt: all.sum,
        outputsAt: outputs.sum,
        peak,
        peakRow: all.at,
        bound,
        weights,
        inputs,
        total: plus(peak, plus(weights, inputs)),
      };
    });
  }

  // The peak alone, from its formulas: quick enough for a map of shapes.
  peakAt({ sizes }, withOutside) {
    const { data } = this;
    return evaluated(this.table, sizes, (at) => {
      let most = null;
      let which = 0;
      const version = this.ways ? this.chosen(at) : 0;
      this.membersOf(version).forEach(([expr], k) => {
        const value = at.expr(expr);
        if (most === null || value > most) [most, which] = [value, k];
      });
      const outside = withOutside ? plus(narrowed(at.expr(data.weights)), narrowed(at.expr(data.inputs))) : 0;
      return { bytes: plus(narrowed(most), outside), which, version };
    });
  }

  // Tensors in memory at a row, the largest first: {tensor, bytes}.
  alive(row, state) {
    const { spans } = this.data;
    const found = [];
    for (let k = 0; k < spans.from.length; k += 1) {
      if (spans.from[k] <= row && row < spans.to[k]) {
        found.push({ span: k, tensor: spans.tensor[k], bytes: state.size(this.spanSizes[k]) });
      }
    }
    return found.sort((a, b) => (a.bytes < b.bytes ? 1 : a.bytes > b.bytes ? -1 : a.span - b.span));
  }

  // Which branches run, in words; empty where no shape decides that.
  get branchText() {
    const ifs = this.data.branches?.ifs ?? [];
    return ifs.map((name, k) => `the ${(this.version >> k) & 1 ? "else" : "then"} branch of ${name}`).join(", ");
  }

  nodeLabel(row) {
    const { rows } = this.data;
    if (row < 0 || row >= this.rows) return "";
    const op = rows.ops[rows.op[row]];
    return op ? `${op} ${rows.name[row]}` : rows.name[row];
  }

  dims(tensor) {
    return this.data.dims[this.data.tensors.dims[tensor]];
  }
}

export function rangeText({ lo, hi, divisor }) {
  const span = hi === null ? `${lo} and up` : lo === hi ? `${lo}` : `${lo} to ${hi.toLocaleString("en-US")}`;
  return divisor > 1 ? `${span}, multiples of ${divisor}` : span;
}
