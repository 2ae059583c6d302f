
"use strict";
// Draws the timeline of the record in this page. Names of tasks are only ever set as text.
(async () => {
  const note = document.getElementById("timeline-note");
  if (typeof DecompressionStream === "undefined") {
    note.textContent = "This browser is too old for the timeline. The tables below have its figures.";
    window.starling = { attempts: 0 };
    return;
  }
  note.textContent = "The timeline is being read.";
  const letters = atob(document.getElementById("record").textContent);
  const file = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) file[at] = letters.charCodeAt(at);

  // The format is described in docs/run-record.md.
  const inflate = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const sections = [];
  const bits = new DataView(file.buffer);
  for (let at = 10; at + 13 <= file.length;) {
    const stored = bits.getUint32(at + 5, true);
    sections.push([String.fromCharCode(file[at]), file.subarray(at + 13, at + 13 + stored)]);
    at += 13 + stored;
  }
  const open = async (tag) =>
    Promise.all(sections.filter((section) => section[0] === tag).map((section) => inflate(section[1])));

  // Reads numbers of variable length. Above 2^53 they lose digits, which no figure here needs.
  const reader = (bytes, from, to) => {
    let at = from;
    return {
      get left() { return to - at; },
      get at() { return at; },
      next() {
        let value = 0, scale = 1;
        for (;;) {
          const byte = bytes[at++];
          value += (byte & 127) * scale;
          if (byte < 128) return value;
          scale *= 128;
        }
      },
      take(length) { at += length; return bytes.subarray(at - length, at); },
    };
  };
  const signed = (n) => (n % 2 ? -(n + 1) / 2 : n / 2);
  const columns = (bytes, number) => {
    const head = reader(bytes, 0, bytes.length);
    const rows = head.next(), all = [];
    for (let column = 0; column < number; column++) {
      const length = head.next();
      all.push(reader(bytes, head.at, head.at + length));
      head.take(length);
    }
    return [rows, all];
  };
  const coarse = (code) => {
    if (code < 16) return code;
    const above = code - 16;
    return (8 + above % 8) * 2 ** (1 + Math.floor(above / 8));
  };

  const meta = JSON.parse(new TextDecoder().decode((await open("M"))[0]));
  const blocks = await open("A");
  const total = blocks.reduce((sum, block) => sum + reader(block, 0, block.length).next(), 0);
  const start = new Float64Array(total), ran = new Float64Array(total), wait = new Float64Array(total);
  const partition = new Uint32Array(total), index = new Float64Array(total);
  const kind = new Uint16Array(total), outcome = new Uint8Array(total), again = new Uint32Array(total);
  // An attempt on several slots has one box for each: (row, attempt).
  let boxRow = new Uint32Array(total + 16), boxOf = new Uint32Array(total + 16), boxes = 0;
  const rowNumber = new Map(), rowKeys = [];
  const rowOf = (node, slot) => {
    const key = node * 4194304 + slot;
    let row = rowNumber.get(key);
    if (row === undefined) {
      row = rowKeys.length;
      rowKeys.push([node, slot]);
      rowNumber.set(key, row);
    }
    return row;
  };
  const addBox = (row, attempt) => {
    if (boxes === boxRow.length) {
      const grow = (old) => { const more = new Uint32Array(old.length * 2); more.set(old); return more; };
      boxRow = grow(boxRow);
      boxOf = grow(boxOf);
    }
    boxRow[boxes] = row;
    boxOf[boxes++] = attempt;
  };

  let made = 0;
  for (const block of blocks) {
    const [, c] = columns(block, 16);
    while (c[0].left) {
      const node = c[0].next(), run = c[0].next();
      const slots = [], partitions = [];
      let lastStart = 0;
      const ended = (slot, end) => {
        const old = slots.findIndex((known) => known[1] === slot);
        if (old >= 0) slots.splice(old, 1);
        let at = slots.length;
        while (at > 0 && (slots[at - 1][0] > end || (slots[at - 1][0] === end && slots[at - 1][1] > slot))) at--;
        slots.splice(at, 0, [end, slot]);
      };
      for (let number = 0; number < run; number++, made++) {
        const place = c[1].next();
        const [after, slot] = place < slots.length ? slots[place] : [lastStart, c[2].next()];
        lastStart = start[made] = after + signed(c[3].next());
        ran[made] = c[4].next();
        wait[made] = coarse(c[5].next());
        c[6].next();
        kind[made] = c[7].next();
        const end = c[8].next();
        outcome[made] = end % 4;
        again[made] = Math.floor(end / 4) + 1;
        addBox(rowOf(node, slot), made);
        ended(slot, start[made] + ran[made]);
        for (let more = c[9].next(); more > 0; more--) {
          const other = c[10].next();
          addBox(rowOf(node, other), made);
          ended(other, start[made] + ran[made]);
        }
        c[11].next();
        c[12].next();
        const where = c[13].next();
        const [known, last] = where < partitions.length ? partitions.splice(where, 1)[0] : [c[14].next(), -1];
        partition[made] = known;
        index[made] = last + 1 + signed(c[15].next());
        partitions.unshift([known, index[made]]);
      }
    }
  }

  // Rows by node and slot; the boxes of each row by start.
  const order = rowKeys.map((_, row) => row);
  order.sort((a, b) => rowKeys[a][0] - rowKeys[b][0] || rowKeys[a][1] - rowKeys[b][1]);
  const shownAt = new Uint32Array(order.length);
  order.forEach((row, at) => { shownAt[row] = at; });
  const rows = order.map((row) => rowKeys[row]);
  const first = new Uint32Array(rows.length + 1);
  for (let box = 0; box < boxes; box++) first[shownAt[boxRow[box]] + 1]++;
  for (let row = 0; row < rows.length; row++) first[row + 1] += first[row];
  const fill = first.slice(), sorted = new Uint32Array(boxes);
  for (let box = 0; box < boxes; box++) sorted[fill[shownAt[boxRow[box]]]++] = boxOf[box];

  // The name of a task, from the blocks of names; they are only opened when one is asked for.
  let names;
  const readNames = async () => {
    const all = new Map();
    for (const block of await open("T")) {
      const [, c] = columns(block, 7), templates = [];
      let lastText = new Uint8Array(0);
      while (c[6].left) {
        const shared = c[6].next(), more = c[6].take(c[6].next());
        const bytes = new Uint8Array(shared + more.length);
        bytes.set(lastText.subarray(0, shared));
        bytes.set(more, shared);
        lastText = bytes;
        templates.push({ text: new TextDecoder().decode(bytes), digits: c[6].next(), number: 0 });
      }
      while (c[0].left) {
        const part = c[0].next(), run = c[0].next();
        let expected = 0;
        for (let number = 0; number < run; number++) {
          const at = expected + signed(c[1].next());
          expected = at + 1;
          const template = templates[c[4].next()];
          template.number += signed(c[5].next());
          const digits = String(template.number).padStart(template.digits, "0");
          all.set(part * 1099511627776 + at, [template, digits]);
        }
      }
    }
    return all;
  };
  const nameOf = async (attempt) => {
    names ??= await readNames();
    const id = `${partition[attempt]}.${index[attempt]}`;
    const found = names.get(partition[attempt] * 1099511627776 + index[attempt]);
    if (!found) return id;
    const name = found[0].digits ? found[0].text.replace("\u0001", () => found[1]) : found[0].text;
    return name ? `${name} (${id})` : id;
  };

  const canvas = document.getElementById("canvas"), under = document.getElementById("under");
  const begin = meta.submitted_us;
  let end = meta.ended_us ?? begin;
  for (let attempt = 0; attempt < total; attempt++) end = Math.max(end, start[attempt] + ran[attempt]);
  if (total === 0) {
    note.textContent = "No attempt of the run is recorded.";
    window.starling = { attempts: 0 };
    return;
  }
  const whole = [begin, Math.max(end, begin + 1)];
  let view = whole.slice();

  const seconds = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(3)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us} us`);
  const words = ["done", "failed", "cancelled", "stopped"];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.length === 4
    ? hex[(at + 1) / 2] + hex[(at + 1) / 2] : hex.slice(at, at + 2), 16));
  const BAD = 8;
  let colours, back;
  const readColours = () => {
    colours = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => rgb(style(`--k${n}`)));
    colours[BAD] = rgb(style("--c1"));
    back = rgb(style("--back"));
  };
  const colourOf = (attempt) => (outcome[attempt] ? BAD : kind[attempt] % 8);

  // The first box of a row that ends after a time: boxes of a row do not overlap.
  const firstAfter = (row, time) => {
    let low = first[row], high = first[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1, attempt = sorted[middle];
      if (start[attempt] + ran[attempt] <= time) low = middle + 1; else high = middle;
    }
    return low;
  };

  let width = 0, height = 0;
  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    width = Math.max(1, Math.floor(canvas.clientWidth * ratio));
    height = Math.floor(Math.min(640, Math.max(120, rows.length * 10)) * ratio);
    canvas.width = width;
    canvas.height = height;
    canvas.style.height = `${height / ratio}px`;
    const context = canvas.getContext("2d");
    const lines = Math.min(height, rows.length), scale = width / (view[1] - view[0]);
    // For each pixel: busy time, and the colour that holds most of it with its lead.
    const busy = new Float32Array(lines * width), lead = new Float32Array(lines * width);
    const colour = new Uint8Array(lines * width);
    const add = (pixel, weight, of) => {
      busy[pixel] += weight;
      if (colour[pixel] === of || lead[pixel] === 0) {
        colour[pixel] = of;
        lead[pixel] += weight;
      } else if (lead[pixel] >= weight) {
        lead[pixel] -= weight;
      } else {
        lead[pixel] = weight - lead[pixel];
        colour[pixel] = of;
      }
    };
    const share = lines / rows.length;
    for (let row = 0; row < rows.length; row++) {
      const line = Math.floor(row * share) * width;
      for (let box = firstAfter(row, view[0]); box < first[row + 1]; box++) {
        const attempt = sorted[box];
        if (start[attempt] >= view[1]) break;
        const from = Math.max(0, (start[attempt] - view[0]) * scale);
        const to = Math.min(width, (start[attempt] + ran[attempt] - view[0]) * scale);
        const of = colourOf(attempt);
        if (to - from <= 1) {
          // A short attempt is seen, however short it is.
          add(line + Math.min(width - 1, Math.floor(from)), Math.max(to - from, 0.02) * share, of);
          continue;
        }
        for (let x = Math.floor(from); x < to; x++) {
          add(line + x, (Math.min(to, x + 1) - Math.max(from, x)) * share, of);
        }
      }
    }
    const image = context.createImageData(width, height), data = image.data;
    for (let y = 0; y < height; y++) {
      const line = Math.floor(y * lines / height);
      const isGap = lines < height / 4 && Math.floor((y + 1) * lines / height) !== line;
      for (let x = 0; x < width; x++) {
        const pixel = line * width + x, at = (y * width + x) * 4;
        const full = isGap ? 0 : Math.min(1, busy[pixel]);
        // Without a clear majority it is grey: a mixed colour means nothing.
        const paint = lead[pixel] > busy[pixel] * 0.2 ? colours[colour[pixel]] : colours[7];
        for (let part = 0; part < 3; part++) data[at + part] = back[part] + (paint[part] - back[part]) * full;
        data[at + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  };

  // The attempt at a place of the canvas, from 0 to 1.
  const attemptAt = (x, y) => {
    const row = Math.min(rows.length - 1, Math.floor(y * rows.length));
    const time = view[0] + x * (view[1] - view[0]), slack = (view[1] - view[0]) / width;
    const box = firstAfter(row, time - slack);
    const attempt = box < first[row + 1] ? sorted[box] : -1;
    return { row, time, attempt: attempt >= 0 && start[attempt] <= time + slack ? attempt : -1 };
  };
  const describe = async (x, y) => {
    const { row, time, attempt } = attemptAt(x, y);
    const place = `n${rows[row][0]} slot ${rows[row][1]}, at ${seconds(time - begin)}`;
    if (attempt < 0) return `${place}: idle`;
    const often = again[attempt] > 1 ? `, attempt ${again[attempt]}` : "";
    return `${place}: ${await nameOf(attempt)}, ${meta.kinds[kind[attempt]] ?? ""}, ${words[outcome[attempt]]}` +
      ` after ${seconds(ran[attempt])}${often}, waited ${seconds(wait[attempt])}`;
  };

  let isAsked = false;
  const redraw = () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => { isAsked = false; draw(); });
  };
  const zoom = (factor, centre = 0.5) => {
    const at = view[0] + centre * (view[1] - view[0]);
    const length = Math.min(whole[1] - whole[0], Math.max(10, (view[1] - view[0]) * factor));
    move(at - centre * length, length);
  };
  const move = (from, length = view[1] - view[0]) => {
    const low = Math.max(whole[0], Math.min(whole[1] - length, from));
    view = [low, low + length];
    redraw();
  };
  const shift = (share) => move(view[0] + share * (view[1] - view[0]));
  const showAll = () => { view = whole.slice(); redraw(); };

  const on = (id, act) => document.getElementById(id).addEventListener("click", act);
  on("zoom-in", () => zoom(0.5));
  on("zoom-out", () => zoom(2));
  on("earlier", () => shift(-0.5));
  on("later", () => shift(0.5));
  on("all", showAll);
  const keys = { "+": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), 0: showAll };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  });
  canvas.addEventListener("dblclick", showAll);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
  }, { passive: false });
  let dragged;
  canvas.addEventListener("pointerdown", (event) => { dragged = event.offsetX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { dragged = undefined; });
  canvas.addEventListener("pointermove", async (event) => {
    if (dragged !== undefined) {
      shift((dragged - event.offsetX) / canvas.clientWidth);
      dragged = event.offsetX;
      return;
    }
    under.textContent = await describe(event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight);
  });

  document.getElementById("timeline-box").hidden = false;
  note.remove();
  readColours();
  const legend = document.getElementById("legend");
  const entry = (of, word) => {
    const box = document.createElement("span"), key = document.createElement("span");
    key.className = "key";
    key.style.background = `rgb(${colours[of]})`;
    box.append(key, ` ${word}`);
    legend.append(box);
  };
  meta.kinds.slice(0, 16).forEach((name, number) => entry(number % 8, name));
  entry(BAD, "did not succeed");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
  addEventListener("resize", redraw);
  draw();
  // For tests of the page.
  window.starling = { attempts: total, rows: rows.length, probe: describe, get view() { return view; }, draw };
})();
