// Draws attempts by slot and time on a canvas, at any zoom.

import type { Attempts } from "./record";

const BAD = 8, KINDS = 8, GAP_FROM = 4, NAMED_ROWS_MAX = 80;
export const WORDS = ["done", "failed", "cancelled", "stopped"] as const;

type Rgb = [number, number, number];

const cssColour = (name: string): Rgb => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const part = (at: number): number => parseInt(hex.slice(at, at + 2), 16) || 0;
  return [part(1), part(3), part(5)];
};

export interface Under { row: number; time: number; attempt: number }

/** What a part of the run looks like, and the part that is seen. */
export class Timeline {
  private view: [number, number];
  private width = 1;
  private isAsked = false;
  private colours: Rgb[] = [];
  private back: Rgb = [0, 0, 0];

  constructor(private readonly canvas: HTMLCanvasElement, private data: Attempts) {
    this.view = [data.begin, data.end];
    this.readColours();
  }

  get seen(): readonly [number, number] { return this.view; }

  /** New attempts of the same run. If all was seen, all is seen. */
  update(data: Attempts): void {
    const isAll = this.view[0] === this.data.begin && this.view[1] === this.data.end;
    this.data = data;
    if (isAll) this.view = [data.begin, data.end];
    this.redraw();
  }

  readColours(): void {
    this.colours = Array.from({ length: KINDS }, (_, n) => cssColour(`--k${n}`));
    this.colours.push(cssColour("--bad"));
    this.back = cssColour("--panel");
    this.redraw();
  }

  redraw(): void {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  zoom(factor: number, centre = 0.5): void {
    const length = this.view[1] - this.view[0], whole = this.data.end - this.data.begin;
    const next = Math.min(whole, Math.max(10, length * factor));
    this.move(this.view[0] + centre * (length - next), next);
  }

  shift(share: number): void {
    this.move(this.view[0] + share * (this.view[1] - this.view[0]), this.view[1] - this.view[0]);
  }

  showAll(): void {
    this.move(this.data.begin, this.data.end - this.data.begin);
  }

  private move(from: number, length: number): void {
    const low = Math.max(this.data.begin, Math.min(this.data.end - length, from));
    this.view = [low, low + length];
    this.redraw();
  }

  /** The attempt at a place of the canvas, from 0 to 1. */
  under(x: number, y: number): Under {
    const { rows, first, sorted, start } = this.data;
    const row = Math.max(0, Math.min(rows.length - 1, Math.floor(y * rows.length)));
    const length = this.view[1] - this.view[0], slack = length / this.width;
    const time = this.view[0] + x * length;
    const box = this.firstAfter(row, time - slack);
    const attempt = box < (first[row + 1] ?? 0) ? sorted[box] ?? -1 : -1;
    return { row, time, attempt: attempt >= 0 && (start[attempt] ?? 0) <= time + slack ? attempt : -1 };
  }

  /** The first box of a row that ends after a time: boxes of a row do not overlap. */
  private firstAfter(row: number, time: number): number {
    const { first, sorted, start, ran } = this.data;
    let low = first[row] ?? 0, high = first[row + 1] ?? 0;
    while (low < high) {
      const middle = (low + high) >> 1, attempt = sorted[middle] ?? 0;
      if ((start[attempt] ?? 0) + (ran[attempt] ?? 0) <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private draw(): void {
    const ratio = window.devicePixelRatio || 1, { canvas, data } = this;
    const width = this.width = Math.max(1, Math.floor(canvas.clientWidth * ratio));
    const height = Math.floor(Math.min(600, Math.max(100, data.rows.length * 14)) * ratio);
    canvas.width = width;
    canvas.height = height;
    canvas.style.height = `${height / ratio}px`;
    const context = canvas.getContext("2d");
    if (!context) return;
    const lines = Math.max(1, Math.min(height, data.rows.length));
    const image = context.createImageData(width, height);
    this.paint(image.data, this.sum(width, lines), width, height, lines);
    context.putImageData(image, 0, 0);
    if (data.rows.length <= NAMED_ROWS_MAX) this.name(context, height / data.rows.length, ratio);
  }

  /** Writes the name of each node on its first row. */
  private name(context: CanvasRenderingContext2D, rowHeight: number, ratio: number): void {
    context.font = `${10 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    this.data.rows.forEach(({ node }, row) => {
      if (row > 0 && this.data.rows[row - 1]?.node === node) return;
      const text = `n${node}`, y = (row + 0.5) * rowHeight;
      context.fillStyle = `rgb(${this.back.join(" ")} / 0.85)`;
      context.fillRect(0, y - 6 * ratio, context.measureText(text).width + 6 * ratio, 12 * ratio);
      context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
      context.fillText(text, 3 * ratio, y);
    });
  }

  /** For each pixel: busy time, and the colour that has most of it with its lead. */
  private sum(width: number, lines: number): { busy: Float32Array; lead: Float32Array; colour: Uint8Array } {
    const { data, view } = this, scale = width / (view[1] - view[0]), share = lines / data.rows.length;
    const busy = new Float32Array(lines * width), lead = new Float32Array(lines * width);
    const colour = new Uint8Array(lines * width);
    const add = (pixel: number, weight: number, of: number): void => {
      busy[pixel]! += weight;
      const ahead = lead[pixel]!;
      if (ahead === 0 || colour[pixel] === of) {
        colour[pixel] = of;
        lead[pixel] = ahead + weight;
      } else if (ahead >= weight) {
        lead[pixel] = ahead - weight;
      } else {
        lead[pixel] = weight - ahead;
        colour[pixel] = of;
      }
    };
    for (let row = 0; row < data.rows.length; row++) {
      const line = Math.floor(row * share) * width, last = data.first[row + 1]!;
      for (let box = this.firstAfter(row, view[0]); box < last; box++) {
        const attempt = data.sorted[box]!, start = data.start[attempt]!;
        if (start >= view[1]) break;
        const from = Math.max(0, (start - view[0]) * scale);
        const to = Math.min(width, (start + data.ran[attempt]! - view[0]) * scale);
        const of = data.outcome[attempt] ? BAD : data.kind[attempt]! % KINDS;
        if (to - from <= 1) {
          // A short attempt is seen, however short it is.
          add(line + Math.min(width - 1, Math.floor(from)), Math.max(to - from, 0.02) * share, of);
          continue;
        }
        // A gap of a pixel parts attempts that follow each other.
        const visible = to - from > GAP_FROM ? from + 1 : from;
        for (let x = Math.floor(visible); x < to; x++) {
          add(line + x, (Math.min(to, x + 1) - Math.max(visible, x)) * share, of);
        }
      }
    }
    return { busy, lead, colour };
  }

  private paint(
    pixels: Uint8ClampedArray, sums: ReturnType<Timeline["sum"]>, width: number, height: number, lines: number,
  ): void {
    // Without a clear majority it is grey: a mixed colour means nothing.
    const grey = this.colours[KINDS - 1]!;
    for (let y = 0; y < height; y++) {
      const line = Math.floor((y * lines) / height);
      const isGap = lines < height / 4 && Math.floor(((y + 1) * lines) / height) !== line;
      for (let x = 0; x < width; x++) {
        const pixel = line * width + x, at = (y * width + x) * 4, busy = sums.busy[pixel]!;
        const full = isGap ? 0 : Math.min(1, busy);
        const paint = sums.lead[pixel]! > busy * 0.2 ? this.colours[sums.colour[pixel]!]! : grey;
        for (let part = 0; part < 3; part++) {
          pixels[at + part] = this.back[part]! + (paint[part]! - this.back[part]!) * full;
        }
        pixels[at + 3] = 255;
      }
    }
  }
}
