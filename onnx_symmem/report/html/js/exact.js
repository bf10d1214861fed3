// Formulas at a shape, in exact integers: numbers while all are safe, else the same again in BigInt.
// The table is described in formulas.py; parts are evaluated once, when they are first asked for.

const OVERFLOW = { name: "a number beyond 2**53" };
const MISSING = { name: "a symbol without a size" };

function safe(value) {
  if (value > Number.MAX_SAFE_INTEGER || value < -Number.MAX_SAFE_INTEGER) throw OVERFLOW;
  return value;
}

function scaledFloor(factors) {
  // ONNX Runtime's Resize: sizes, quotients and products are float32, the last factors are joined first. The
  // quotient or product of two float32 is rounded once: in double precision it has all the digits that decide.
  const single = ([top, bottom]) => Math.fround(Math.fround(Number(top)) / Math.fround(Number(bottom)));
  return Math.floor(factors.map(single).reduceRight((product, factor) => Math.fround(factor * product)));
}

const NUMBERS = {
  lift: (value) => safe(Number(value)),
  add: (a, b) => safe(a + b),
  times: (a, b) => safe(a * b),
  over: (a, b) => {
    const rest = a % b; // exact, unlike a / b
    const whole = (a - rest) / b;
    return rest !== 0 && rest < 0 !== b < 0 ? whole - 1 : whole;
  },
  scaled: (factors) => safe(scaledFloor(factors)),
};

const INTEGERS = {
  lift: (value) => BigInt(value),
  add: (a, b) => a + b,
  times: (a, b) => a * b,
  over: (a, b) => {
    const whole = a / b;
    return a % b !== 0n && a < 0n !== b < 0n ? whole - 1n : whole;
  },
  scaled: (factors) => BigInt(scaledFloor(factors)),
};

class Evaluation {
  constructor(table, sizes, arithmetic) {
    this.table = table;
    this.sizes = sizes;
    this.by = arithmetic;
    this.exprs = new Array(table.exprs.length);
    this.monomials = new Array(table.monomials.length);
    this.atoms = new Array(table.atoms.length);
  }

  expr(index) {
    let total = this.exprs[index];
    if (total !== undefined) return total;
    const { by } = this;
    const code = this.table.exprs[index];
    total = by.lift(0);
    for (let k = 0; k < code.length; k += 2) {
      total = by.add(total, by.times(by.lift(code[k]), this.monomial(code[k + 1])));
    }
    this.exprs[index] = total;
    return total;
  }

  monomial(index) {
    let product = this.monomials[index];
    if (product !== undefined) return product;
    const { by } = this;
    const code = this.table.monomials[index];
    product = by.lift(1);
    for (let k = 0; k < code.length; k += 2) {
      const value = this.atom(code[k]);
      for (let power = code[k + 1]; power > 0; power -= 1) product = by.times(product, value);
    }
    this.monomials[index] = product;
    return product;
  }

  atom(index) {
    let value = this.atoms[index];
    if (value === undefined) {
      value = this.apply(this.table.atoms[index]);
      this.atoms[index] = value;
    }
    return value;
  }

  // [top, bottom] of a factor; a decimal stays a text.
  factor(code) {
    if (typeof code === "string") return [code, 1];
    return typeof code === "number" ? [this.expr(code), 1] : code.map((part) => this.expr(part));
  }

  apply([kind, ...args]) {
    const { by } = this;
    if (kind === 0) {
      const size = this.sizes[args[0]];
      if (size === undefined) throw MISSING;
      return by.lift(size);
    }
    if (kind === 4) return by.scaled(args.map((factor) => this.factor(factor)));
    const values = args.map((arg) => this.expr(arg));
    if (kind === 1) return by.over(values[0], values[1]);
    const better = kind === 2 ? (a, b) => (a < b ? b : a) : (a, b) => (b < a ? b : a);
    return values.reduce(better);
  }
}

// What `work` makes of an evaluation at `sizes` (by symbol number); null where a symbol has no size.
export function evaluated(table, sizes, work) {
  try {
    return work(new Evaluation(table, sizes, NUMBERS));
  } catch (problem) {
    if (problem === MISSING) return null;
    if (problem !== OVERFLOW) throw problem;
  }
  try {
    return work(new Evaluation(table, sizes, INTEGERS));
  } catch (problem) {
    if (problem === MISSING) return null;
    throw problem;
  }
}

// Numbers and BigInts are added up without loss.
export function plus(a, b) {
  if (typeof a === "number" && typeof b === "number" && Number.isSafeInteger(a + b)) return a + b;
  return narrowed(BigInt(a) + BigInt(b));
}


export function narrowed(value) {
  const small = Number(value);
  return Number.isSafeInteger(small) ? small : value;
}

// The running sum of sizes that come at `from` and go at `to`: one number per row to draw, `sum(row)` to the
// byte, and the first largest of the rows that are `seen`.
export function runningSum(count, from, to, sizes, seen = null) {
  let bound = 0;
  for (const size of sizes) bound += Number(size);
  const exact = bound <= Number.MAX_SAFE_INTEGER;
  const zero = exact ? 0 : 0n;
  const change = exact ? new Float64Array(count + 1) : new Array(count + 1).fill(0n);
  for (let k = 0; k < from.length; k += 1) {
    const size = exact ? Number(sizes[k]) : BigInt(sizes[k]);
    change[from[k]] += size;
    change[to[k]] -= size;
  }
  const rows = new Float64Array(count);
  const sums = exact ? rows : new Array(count);
  let sum = zero;
  for (let row = 0; row < count; row += 1) {
    sum += change[row];
    sums[row] = sum;
    rows[row] = Number(sum);
  }
  let most = zero;
  let at = seen?.[0] ?? (count ? 0 : -1);
  for (let k = 0; k < (seen ?? rows).length; k += 1) {
    const row = seen ? seen[k] : k;
    if (sums[row] > most) [most, at] = [sums[row], row];
  }
  return { rows, most, at, sum: (row) => (row >= 0 && row < count ? narrowed(sums[row]) : 0) };
}
