// Runs the script of a report with a small model of a browser, and prints what it shows as JSON.
// usage: node check.mjs REPORT.html [X,Y ...]    places of the timeline from 0 to 1
import { readFileSync } from "node:fs";

const page = readFileSync(process.argv[2], "utf8");
const part = (start) => {
  const from = page.indexOf(start) + start.length;
  return page.slice(from, page.indexOf("</script>", from));
};
const colours = new Map([...page.matchAll(/--(\w+):(#[0-9a-f]+)/g)].reverse().map((it) => [`--${it[1]}`, it[2]]));
let painted;
const element = (id) => ({
  id, textContent: id === "record" ? part('id="record">') : "", style: {}, clientWidth: 800, clientHeight: 400, kept: [],
  addEventListener() {}, remove() { this.isRemoved = true; }, append(...more) { this.kept.push(...more); }, setPointerCapture() {},
  getContext: () => ({
    createImageData: (width, height) => ({ width, height, data: new Uint8ClampedArray(width * height * 4) }),
    putImageData(image) { painted = image; },
  }),
});
const elements = new Map();
globalThis.window = globalThis;
globalThis.document = {
  documentElement: {},
  createElement: () => element(""),
  getElementById(id) {
    if (!elements.has(id)) elements.set(id, element(id));
    return elements.get(id);
  },
};
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => colours.get(name) ?? "#000" });
globalThis.matchMedia = () => ({ addEventListener() {} });
globalThis.requestAnimationFrame = (act) => setTimeout(act, 0);
globalThis.addEventListener = () => {};

const began = performance.now();
(0, eval)(part("</script>\n<script>"));
while (!globalThis.starling) await new Promise((done) => setTimeout(done, 5));
if (!globalThis.starling.attempts) {
  console.log(JSON.stringify({ attempts: 0, note: elements.get("timeline-note").textContent }));
  process.exit(0);
}
const ready_ms = performance.now() - began;
const drawing = performance.now();
globalThis.starling.draw();
const draw_ms = performance.now() - drawing;
const probes = [];
for (const place of process.argv.slice(3)) {
  const [x, y] = place.split(",").map(Number);
  probes.push(await globalThis.starling.probe(x, y));
}
const shades = new Set();
for (let at = 0; at < painted.data.length; at += 4) shades.add(painted.data.slice(at, at + 3).join());
console.log(JSON.stringify({
  attempts: globalThis.starling.attempts, rows: globalThis.starling.rows, probes, shades: shades.size,
  legend: elements.get("legend").kept.map((box) => box.kept[1]), ready_ms, draw_ms, heap: process.memoryUsage().heapUsed,
}));
