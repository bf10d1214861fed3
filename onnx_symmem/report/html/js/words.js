// Numbers, sizes, and formulas as text; nothing here touches the page but `element`.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(value) {
  return value.toLocaleString("en-US");
}

export function bytes(value) {
  let size = Number(value);
  const sign = size < 0 ? "−" : "";
  size = Math.abs(size);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${sign}${count(size)} B`;
  const digits = size < 99.995 ? 2 : 1;
  const text = size.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${sign}${text} ${UNITS[unit]}`;
}

// For marks at round sizes: 1 GiB, 2.5 GiB.
export function roundBytes(value) {
  return bytes(value).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

export function exactly(value) {
  return `${count(value)} ${Number(value) === 1 ? "byte" : "bytes"}`;
}

// A budget as the command line takes it: 24GiB, 24 GB, 25769803776; null where it is none.
export function parseBytes(text) {
  const match = /^\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(i?)b|b?)\s*$/i.exec(text);
  if (!match) return null;
  const power = match[2] ? "kmgt".indexOf(match[2].toLowerCase()) + 1 : 0;
  const size = Math.floor(Number(match[1]) * (match[3] ? 1024 : 1000) ** power);
  return Number.isSafeInteger(size) ? size : null;
}

export function versionText(number, name) {
  const own = `version ${number}`;
  return name === own ? own : `${own}, ${name}`;
}

export function share(part, whole) {
  return Number(whole) ? `${((Number(part) / Number(whole)) * 100).toFixed(1)} %` : "–";
}

export function change(after, before) {
  if (!Number(before)) return "";
  const percent = (Number(after) / Number(before) - 1) * 100;
  const text = Math.abs(percent).toFixed(1);
  return Number(text) ? `${percent < 0 ? "−" : "+"}${text} %` : "unchanged";
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// ---------------------------------------------------------------------------------------- formulas

// A formula for people, as nodes: symbols in italics, floors in their brackets, powers raised.
export function formula(table, index) {
  if (!made.has(table)) made.set(table, new Map());
  const known = made.get(table);
  if (!known.has(index)) known.set(index, element("span", { class: "formula" }, ...sum(table, index)));
  return known.get(index).cloneNode(true);
}

const made = new WeakMap(); // formulas by table and number: tables of tensors show the same ones again and again

function sum(table, index) {
  const code = table.exprs[index];
  if (!code.length) return ["0"];
  const parts = [];
  for (let k = 0; k < code.length; k += 2) {
    const coefficient = BigInt(code[k]);
    const negative = coefficient < 0n;
    if (k) parts.push(negative ? " − " : " + ");
    else if (negative) parts.push("−");
    const size = negative ? -coefficient : coefficient;
    const factors = product(table, code[k + 1]);
    const shown = size !== 1n || !factors.length ? [count(size)] : [];
    const term = [...shown, ...factors.flatMap((f, n) => (n || shown.length ? ["\u2009·\u2009", ...f] : f))];
    parts.push(element("span", { class: "term" }, ...term));
  }
  return parts;
}

function product(table, index) {
  const code = table.monomials[index];
  const factors = [];
  for (let k = 0; k < code.length; k += 2) {
    const shown = atom(table, table.atoms[code[k]]);
    factors.push(code[k + 1] > 1 ? [...shown, element("sup", { text: String(code[k + 1]) })] : shown);
  }
  return factors;
}

function atom(table, [kind, ...args]) {
  if (kind === 0) return [element("var", { text: table.symbols[args[0]] })];
  const wrapped = (index) => (table.exprs[index].length > 2 ? ["(", ...sum(table, index), ")"] : sum(table, index));
  if (kind === 1) return ["⌊", ...wrapped(args[0]), " / ", ...wrapped(args[1]), "⌋"];
  if (kind === 4) {
    // Rounded from the last factor on.
    const shown = args.map((code) => {
      if (typeof code === "string") return [code];
      return typeof code === "number" ? wrapped(code) : ["(", ...wrapped(code[0]), " / ", ...wrapped(code[1]), ")"];
    });
    const close = ")".repeat(Math.max(0, shown.length - 2));
    const joined = shown.flatMap((part, k) => [...(k ? [k < shown.length - 1 ? " × (" : " × "] : []), ...part]);
    return ["⌊", ...joined, close, "⌋"];
  }
  const inner = args.map((arg) => sum(table, arg));
  const name = kind === 2 ? "max(" : "min(";
  return [name, ...inner.flatMap((part, k) => (k ? [", ", ...part] : part)), ")"];
}

// The same as the command line prints it, in Python syntax, to be copied.
export function pythonText(table, index) {
  const code = table.exprs[index];
  const parts = [];
  for (let k = 0; k < code.length; k += 2) {
    const coefficient = BigInt(code[k]);
    const size = coefficient < 0n ? -coefficient : coefficient;
    const mono = table.monomials[code[k + 1]];
    const factors = size !== 1n || !mono.length ? [String(size)] : [];
    for (let m = 0; m < mono.length; m += 2) {
      const text = pythonAtom(table, table.atoms[mono[m]]);
      factors.push(mono[m + 1] > 1 ? `${text}**${mono[m + 1]}` : text);
    }
    const sign = coefficient < 0n ? "-" : "+";
    parts.push(k ? ` ${sign} ` : sign === "-" ? "-" : "", factors.join("*"));
  }
  return parts.join("") || "0";
}

function pythonAtom(table, [kind, ...args]) {
  if (kind === 0) {
    const name = table.symbols[args[0]];
    const plain = /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !["max", "min", "sym", "floor_f32"].includes(name);
    return plain ? name : `sym('${name.replace(/[\\']/g, "\\$&")}')`;
  }
  if (kind === 1) return `((${pythonText(table, args[0])})//(${pythonText(table, args[1])}))`;
  if (kind === 4) return `floor_f32(${args.map((code) => pythonFactor(table, code)).join(", ")})`;
  return `${kind === 2 ? "max" : "min"}(${args.map((arg) => pythonText(table, arg)).join(", ")})`;
}

function pythonFactor(table, code) {
  if (typeof code === "string") return code;
  if (typeof code === "number") return pythonText(table, code);
  return `(${pythonText(table, code[0])})/(${pythonText(table, code[1])})`;
}

// A fact `expr >= 0` as people write it, e.g. past ≤ total.
export function factText(table, index) {
  const code = table.exprs[index];
  const sides = [[], []];
  for (let k = 0; k < code.length; k += 2) {
    const coefficient = BigInt(code[k]);
    const positive = coefficient > 0n;
    const size = positive ? coefficient : -coefficient;
    const factors = product(table, code[k + 1]).map((f) => element("span", {}, ...f).textContent);
    sides[positive ? 1 : 0].push([...(size !== 1n || !factors.length ? [count(size)] : []), ...factors].join("·"));
  }
  const [small, large] = sides.map((side) => side.join(" + ") || "0");
  return `${small} ≤ ${large}`;
}
