// The page of a cluster with one ended job, which has failures and a name that is HTML.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessibility, address, job, open, pages, shot, until, url, visit } from "./browser.mjs";

const settle = (page) => until(page, () => !/is read\.|are asked|is asked|Asking/.test(document.querySelector("main").textContent));

for (const colorScheme of ["light", "dark"]) {
  test(`every page is shown without errors, ${colorScheme}`, async (t) => {
    const { page, errors } = await open(t, { colorScheme });
    for (const [path, heading] of pages) {
      await visit(page, path, heading);
      await settle(page);
      await shot(page, `${colorScheme}${path.replaceAll("/", "-")}`);
      assert.deepEqual(await accessibility(page), [], path);
    }
    assert.deepEqual(errors, []);
  });
}

test("every page fits 400 pixels", async (t) => {
  const { page, errors } = await open(t, { viewport: { width: 400, height: 800 } });
  for (const [path, heading] of pages) {
    await visit(page, path, heading);
    await settle(page);
    await shot(page, `narrow${path.replaceAll("/", "-")}`);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 400, `${path} is ${width} wide`);
  }
  assert.deepEqual(errors, []);
});

test("the token leaves the address, and without it there is a question", async (t) => {
  const { context, page, errors } = await open(t);
  await page.locator("main h1", { hasText: "Overview" }).waitFor();
  assert.ok(!page.url().includes(address.hash.slice(3)));
  const other = await context.newPage();
  await other.goto(`${address.origin}/#/`);
  await other.locator("h1", { hasText: "The token is missing" }).waitFor();
  await other.getByLabel("Address or token").fill(`${address.origin}/#t=${"0".repeat(32)}`);
  await other.getByRole("button", { name: "Open" }).click();
  await other.locator("h1", { hasText: "The token is wrong" }).waitFor();
  await other.getByLabel("Address or token").fill(url);
  await other.getByRole("button", { name: "Open" }).click();
  await other.locator("h1", { hasText: "Overview" }).waitFor();
  assert.deepEqual(errors, []);
});

test("figures are those of the server", async (t) => {
  const { page, errors } = await open(t);
  const token = address.hash.slice(3);
  await visit(page, `/jobs/${job}`, `Job ${job}`);
  await page.locator("dt", { hasText: /^done$/ }).waitFor();
  const report = await (await fetch(`${address.origin}/api/v1/jobs/${job}/report`, { headers: { Authorization: `Bearer ${token}` } })).json();
  const shown = async (name) => (await page.locator(`.figures div:has(dt:text-is("${name}")) dd`).textContent()).replace(/[^0-9]/g, "");
  assert.equal(await shown("done"), String(report.tasks.done));
  assert.equal(await shown("failed"), String(report.tasks.failed));
  const rows = await page.locator('[aria-label="Progress by kind, table"] tbody tr').count();
  assert.equal(rows, report.progress.length);
  await visit(page, `/jobs/${job}/timeline`, `Job ${job}`);
  await until(page, () => window.starling !== undefined);
  assert.equal(await page.evaluate(() => window.starling.attempts), report.attempts);
  const probe = await page.evaluate(async () => {
    const found = [];
    for (let y = 0.02; y < 1; y += 0.05) for (let x = 0.01; x < 1; x += 0.02) found.push((await window.starling.probe(x, y)).text);
    return found;
  });
  assert.ok(probe.some((text) => /make-\d+, kind make, done after/.test(text)), probe[0]);
  assert.ok(probe.every((text) => /^n\d+ slot \d+, at /.test(text)));
  const colours = await page.evaluate(() => {
    const canvas = document.getElementById("timeline");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const found = new Set();
    for (let at = 0; at < pixels.length; at += 4) found.add(`${pixels[at]},${pixels[at + 1]},${pixels[at + 2]}`);
    return found.size;
  });
  assert.ok(colours >= 3, `${colours} colours`);
  await page.locator("#timeline").focus();
  const before = await page.evaluate(() => window.starling.seen());
  await page.keyboard.press("+");
  const after = await page.evaluate(() => window.starling.seen());
  assert.ok(after[1] - after[0] < (before[1] - before[0]) * 0.6);
  assert.deepEqual(errors, []);
});

test("hostile names and output are text", async (t) => {
  const { page, errors } = await open(t);
  await visit(page, `/jobs/${job}/tasks`, `Job ${job}`);
  await page.getByLabel("Name or id").fill("<img");
  await page.locator("p[role=status]", { hasText: "Tasks 1 to 1 of 1" }).waitFor();
  await page.locator('[aria-label="Tasks, table"] tbody a').click();
  await page.locator("main h1", { hasText: "<img src=x onerror=alert(1)>" }).waitFor();
  await page.locator('pre[aria-label="Standard error"]', { hasText: "<script>alert(2)</script>" }).waitFor();
  await page.locator('pre[aria-label="Standard output"]', { hasText: "<b>out</b>" }).waitFor();
  assert.equal(await page.locator("main img, main script, main b").count(), 0);
  await shot(page, "task");
  assert.deepEqual(await accessibility(page), []);
  assert.deepEqual(errors, []);
});

test("everything is reached by keyboard", async (t) => {
  const { page, errors } = await open(t);
  await page.locator("main h1", { hasText: "Overview" }).waitFor();
  for (const [key, heading] of [["n", "Nodes"], ["t", "Store"], ["s", "Stalls"], ["e", "Events"], ["j", "Jobs"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.locator("main h1", { hasText: heading }).waitFor();
  }
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "search");
  await page.keyboard.type("nothing has this name");
  assert.equal(await page.locator('[aria-label="Jobs, table"] tbody tr').count(), 0);
  await page.keyboard.press("Tab");
  await page.keyboard.press("?");
  await page.locator("dialog").waitFor();
  await shot(page, "keys");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog").count(), 0);
  await page.keyboard.press("p");
  await page.locator("header", { hasText: "paused" }).waitFor();
  assert.deepEqual(errors, []);
});

test("without leave there is no button for a change", async (t) => {
  const { page, errors } = await open(t);
  for (const [path, heading] of pages) {
    await visit(page, path, heading);
    await settle(page);
    assert.equal(await page.locator("main").getByRole("button", { name: /cancel|retry|drain|pause|resume/i }).count(), 0, path);
  }
  assert.deepEqual(errors, []);
});
