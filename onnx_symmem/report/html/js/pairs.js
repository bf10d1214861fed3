// Which moment of another model's run is the same node's: by the tensors that it makes, else by its name.

export class Pairs {
  constructor(model, other) {
    Object.assign(this, { model, other });
    this.made = makers(model);
    this.byTensor = new Map();
    this.byNode = new Map();
    makers(other).forEach((names, row) => names.forEach((name) => add(this.byTensor, name, row)));
    other.data.rows.name.forEach((name, row) => named(name) && add(this.byNode, name, row));
  }

  // The row of the other's present run; null where that node is not in it.
  of(row) {
    const names = this.made.get(row) ?? [];
    for (const name of names) {
      const found = this.present(this.byTensor.get(name));
      if (found !== null) return found;
    }
    const name = this.model.data.rows.name[row];
    return named(name) ? this.present(this.byNode.get(name)) : null;
  }

  present(rows) {
    if (this.version !== this.other.version) {
      this.version = this.other.version;
      this.running = new Set(this.other.run.rows);
    }
    return rows?.find((row) => this.running.has(row)) ?? null;
  }
}

// Names of the tensors that each row makes.
function makers({ data }) {
  const found = new Map();
  data.tensors.made.forEach((row, tensor) => row >= 0 && add(found, row, data.tensors.name[tensor]));
  return found;
}

function add(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}

// Nodes without a name are numbered, which says nothing across models.
function named(name) {
  return name !== undefined && !/^#[0-9]+$/.test(name);
}
