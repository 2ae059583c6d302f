// Reads a run record. The format is described in docs/run-record.md.

export interface Meta { submitted_us: number; ended_us?: number; kinds: string[]; missing?: { node: number; why: string }[] }

/** The attempts of a run in columns, and the boxes of each slot in the order of time. */
export interface Attempts {
  meta: Meta; total: number; start: Float64Array; ran: Float64Array; wait: Float64Array; partition: Uint32Array;
  index: Float64Array; kind: Uint16Array; outcome: Uint8Array; again: Uint32Array;
  rows: { node: number; slot: number }[]; first: Uint32Array; sorted: Uint32Array; begin: number; end: number;
  nameOf: (attempt: number) => Promise<string>; idOf: (attempt: number) => string;
}

class Reader {
  constructor(private readonly bytes: Uint8Array, private at: number, private readonly to: number) {}
  get left(): boolean { return this.at < this.to; }
  get place(): number { return this.at; }
  /** A number of variable length. Above 2^53 it loses digits, which no figure here needs. */
  next(): number {
    let value = 0, scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error("the record ends too early");
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  }
  take(length: number): Uint8Array {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
}

const HEAD_BYTES = 10, SECTION_BYTES = 13, ATTEMPT_COLUMNS = 16, TASK_COLUMNS = 7, SLOTS_MAX = 4194304;

const signed = (n: number): number => (n % 2 ? -(n + 1) / 2 : n / 2);

const coarse = (code: number): number =>
  code < 16 ? code : (8 + ((code - 16) % 8)) * 2 ** (1 + Math.floor((code - 16) / 8));

const inflate = async (bytes: Uint8Array): Promise<Uint8Array> => {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

const sectionsOf = (file: Uint8Array): (tag: string) => Promise<Uint8Array[]> => {
  const found: [string, Uint8Array][] = [];
  const bits = new DataView(file.buffer, file.byteOffset, file.byteLength);
  for (let at = HEAD_BYTES; at + SECTION_BYTES <= file.length;) {
    const stored = bits.getUint32(at + 5, true), begin = at + SECTION_BYTES;
    found.push([String.fromCharCode(file[at] ?? 0), file.subarray(begin, begin + stored)]);
    at = begin + stored;
  }
  return async (tag) => Promise.all(found.filter((it) => it[0] === tag).map((it) => inflate(it[1])));
};

const columns = (bytes: Uint8Array, number: number): Reader[] => {
  const head = new Reader(bytes, 0, bytes.length), all: Reader[] = [];
  head.next();
  for (let column = 0; column < number; column++) {
    const length = head.next();
    all.push(new Reader(bytes, head.place, head.place + length));
    head.take(length);
  }
  return all;
};

/** A list of numbers that grows. */
class Numbers {
  private items = new Uint32Array(1024);
  length = 0;
  push(value: number): void {
    if (this.length === this.items.length) {
      const more = new Uint32Array(this.length * 2);
      more.set(this.items);
      this.items = more;
    }
    this.items[this.length++] = value;
  }
  get(at: number): number { return this.items[at] ?? 0; }
}

type Columns = Pick<Attempts, "start" | "ran" | "wait" | "partition" | "index" | "kind" | "outcome" | "again">;

/** The rows of slots, and the boxes in them: (row, attempt). An attempt on several slots has several. */
class Boxes {
  private readonly numbers = new Map<number, number>();
  readonly rows: { node: number; slot: number }[] = [];
  readonly row = new Numbers();
  readonly attempt = new Numbers();
  add(node: number, slot: number, attempt: number): void {
    const key = node * SLOTS_MAX + slot;
    let row = this.numbers.get(key);
    if (row === undefined) {
      row = this.rows.length;
      this.rows.push({ node, slot });
      this.numbers.set(key, row);
    }
    this.row.push(row);
    this.attempt.push(attempt);
  }
}

/** The slots of a node by last end, as a writer of records has them. */
class LastEnds {
  private readonly slots: [number, number][] = [];
  get length(): number { return this.slots.length; }
  at(place: number): [number, number] { return this.slots[place] ?? [0, 0]; }
  ended(slot: number, end: number): void {
    const old = this.slots.findIndex((known) => known[1] === slot);
    if (old >= 0) this.slots.splice(old, 1);
    let at = this.slots.length;
    for (; at > 0; at--) {
      const [lastEnd, lastSlot] = this.at(at - 1);
      if (lastEnd < end || (lastEnd === end && lastSlot <= slot)) break;
    }
    this.slots.splice(at, 0, [end, slot]);
  }
}

const readBlock = (block: Uint8Array, from: number, into: Columns, boxes: Boxes): number => {
  const all = columns(block, ATTEMPT_COLUMNS);
  const next = (column: number): number => (all[column] as Reader).next();
  let made = from;
  while ((all[0] as Reader).left) {
    const node = next(0), run = next(0), ends = new LastEnds(), partitions: [number, number][] = [];
    let lastStart = 0;
    for (let number = 0; number < run; number++, made++) {
      const place = next(1);
      const [after, slot] = place < ends.length ? ends.at(place) : [lastStart, next(2)];
      const start = after + signed(next(3)), ran = next(4);
      lastStart = start;
      into.start[made] = start;
      into.ran[made] = ran;
      into.wait[made] = coarse(next(5));
      next(6);
      into.kind[made] = next(7);
      const end = next(8);
      into.outcome[made] = end % 4;
      into.again[made] = Math.floor(end / 4) + 1;
      boxes.add(node, slot, made);
      ends.ended(slot, start + ran);
      for (let more = next(9); more > 0; more--) {
        const other = next(10);
        boxes.add(node, other, made);
        ends.ended(other, start + ran);
      }
      next(11);
      next(12);
      const where = next(13);
      const [known, last] = partitions.splice(where, 1)[0] ?? [next(14), -1];
      const index = last + 1 + signed(next(15));
      into.partition[made] = known;
      into.index[made] = index;
      partitions.unshift([known, index]);
    }
  }
  return made;
};

/** The names of all tasks, by partition and index. */
const readNames = async (open: (tag: string) => Promise<Uint8Array[]>): Promise<Map<string, string>> => {
  const names = new Map<string, string>();
  for (const block of await open("T")) {
    const all = columns(block, TASK_COLUMNS);
    const column = (number: number): Reader => all[number] as Reader;
    const templates: { text: string; digits: number; number: number }[] = [];
    let last = new Uint8Array(0);
    while (column(6).left) {
      const shared = column(6).next(), more = column(6).take(column(6).next());
      const bytes = new Uint8Array(shared + more.length);
      bytes.set(last.subarray(0, shared));
      bytes.set(more, shared);
      last = bytes;
      templates.push({ text: new TextDecoder().decode(bytes), digits: column(6).next(), number: 0 });
    }
    while (column(0).left) {
      const partition = column(0).next(), run = column(0).next();
      let expected = 0;
      for (let number = 0; number < run; number++) {
        const at = expected + signed(column(1).next());
        expected = at + 1;
        const template = templates[column(4).next()];
        const step = signed(column(5).next());
        if (!template) continue;
        template.number += step;
        const digits = String(template.number).padStart(template.digits, "0");
        names.set(`${partition}.${at}`, template.digits ? template.text.replace("\u0001", () => digits) : template.text);
      }
    }
  }
  return names;
};

/** The boxes of each row, by start: rows by node and slot. */
const arrange = (boxes: Boxes): Pick<Attempts, "rows" | "first" | "sorted"> => {
  const order = boxes.rows.map((_, row) => row);
  const of = (row: number): { node: number; slot: number } => boxes.rows[row] ?? { node: 0, slot: 0 };
  order.sort((a, b) => of(a).node - of(b).node || of(a).slot - of(b).slot);
  const shownAt = new Uint32Array(order.length);
  order.forEach((row, at) => { shownAt[row] = at; });
  const first = new Uint32Array(order.length + 1), sorted = new Uint32Array(boxes.row.length);
  const rowOf = (box: number): number => shownAt[boxes.row.get(box)] ?? 0;
  for (let box = 0; box < sorted.length; box++) first[rowOf(box) + 1]! += 1;
  for (let row = 0; row < order.length; row++) first[row + 1]! += first[row] ?? 0;
  const fill = first.slice();
  for (let box = 0; box < sorted.length; box++) {
    const row = rowOf(box), at = fill[row] ?? 0;
    sorted[at] = boxes.attempt.get(box);
    fill[row] = at + 1;
  }
  return { rows: order.map(of), first, sorted };
};

export const readRecord = async (file: Uint8Array): Promise<Attempts> => {
  const open = sectionsOf(file);
  const head = (await open("M"))[0];
  if (!head) throw new Error("the record has no head");
  const meta = JSON.parse(new TextDecoder().decode(head)) as Meta;
  const blocks = await open("A");
  const total = blocks.reduce((sum, block) => sum + new Reader(block, 0, block.length).next(), 0);
  const into: Columns = {
    start: new Float64Array(total), ran: new Float64Array(total), wait: new Float64Array(total),
    partition: new Uint32Array(total), index: new Float64Array(total), kind: new Uint16Array(total),
    outcome: new Uint8Array(total), again: new Uint32Array(total),
  };
  const boxes = new Boxes();
  let made = 0;
  for (const block of blocks) made = readBlock(block, made, into, boxes);
  const begin = meta.submitted_us;
  let end = meta.ended_us ?? begin;
  for (let attempt = 0; attempt < total; attempt++) {
    end = Math.max(end, (into.start[attempt] ?? 0) + (into.ran[attempt] ?? 0));
  }
  let names: Promise<Map<string, string>> | undefined;
  const idOf = (attempt: number): string => `${into.partition[attempt]}.${into.index[attempt]}`;
  const nameOf = async (attempt: number): Promise<string> => {
    names ??= readNames(open);
    return (await names).get(idOf(attempt)) ?? "";
  };
  return { meta, total, ...into, ...arrange(boxes), begin, end: Math.max(end, begin + 1), nameOf, idOf };
};
