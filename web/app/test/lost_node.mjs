// The page of a cluster that has just lost its first node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { job, open, shot, visit } from "./browser.mjs";

test("a lost node is named, and the others answer", async (t) => {
  const { page, errors } = await open(t);
  await page.locator("header", { hasText: "1 down" }).waitFor();
  await page.locator(".warning", { hasText: "n0 is down" }).first().waitFor();
  await shot(page, "lost");
  await visit(page, "/nodes/0", "Node n0");
  await page.locator(".warning", { hasText: "It does not answer" }).waitFor();
  await visit(page, `/jobs/${job}`, `Job ${job}`);
  await page.locator("dt", { hasText: /^done$/ }).waitFor();
  // While homes move, an answer may be late: the page asks again.
  assert.deepEqual(errors.filter((it) => !it.includes("Failed to load resource")), []);
});
