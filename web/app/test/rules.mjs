// Which changes the page offers for an object, and their texts. It needs no browser and no cluster.

import assert from "node:assert/strict";
import { test } from "node:test";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const app = join(dirname(fileURLToPath(import.meta.url)), "..");
const built = await build({ absWorkingDir: app, entryPoints: ["src/changes.ts"], bundle: true, format: "esm", write: false });
const { jobOffers, nodeOffers, title } = await import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);

const job = (state, more = {}) => ({ job: "7", name: "", state, total: 9, done: 0, failed: 0, cancelled: 0, skipped: 0, submitted_s: 0, ...more });
const node = (more) => ({ id: 2, host: "", state: "up", ...more });
const words = (offers) => offers.map((it) => it.what);

test("a job that has not ended is cancelled, and its open tasks are counted", () => {
  for (const state of ["staged", "running"]) {
    const [offer, ...more] = jobOffers(job(state, { done: 2, failed: 1 }));
    assert.deepEqual([offer.what, offer.path, offer.confirm, more], ["cancel", "api/v1/jobs/7/cancel", "7", []]);
    assert.match(offer.effect, /: 6 now/);
  }
});

test("only an ended job with tasks that are not done is run again", () => {
  assert.deepEqual(words(jobOffers(job("finished", { done: 9 }))), []);
  assert.deepEqual(words(jobOffers(job("lost", { failed: 1 }))), []);
  for (const part of ["failed", "skipped", "cancelled"]) {
    const [offer] = jobOffers(job("failed", { done: 6, [part]: 3 }));
    assert.equal(offer.what, "retry");
    assert.match(offer.effect, /: 3 of 9\./);
  }
});

test("a node that is up is drained, and paused or resumed", () => {
  assert.deepEqual(words(nodeOffers(node({}))), ["pause", "drain"]);
  assert.deepEqual(words(nodeOffers(node({ paused: true }))), ["resume", "drain"]);
  for (const state of ["down", "leaving", "joining", "removed"]) assert.deepEqual(nodeOffers(node({ state })), []);
  assert.equal(nodeOffers(node({}))[0].path, "api/v1/nodes/n2/pause");
});

test("the title names the object", () => {
  assert.equal(title(jobOffers(job("running", { name: "sums" }))[0]), "Cancel job 7 sums");
  assert.equal(title(nodeOffers(node({ host: "h1" }))[1]), "Drain node n2 on h1");
});
