// The page of a server with --allow-changes: STARLING_JOB has ended with failures, and STARLING_RUNNING_JOB, named sleep, runs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessibility, address, job, open, shot, until, visit } from "./browser.mjs";

const running = process.env.STARLING_RUNNING_JOB;
const headers = { Authorization: `Bearer ${address.hash.slice(3)}` };
const state = async (of) => {
  const seen = await (await fetch(`${address.origin}/api/v1/overview`, { headers })).json();
  return seen.jobs.find((it) => it.job === of).state;
};
const button = (page, name) => page.locator("main").getByRole("button", { name });
const dialog = (page) => page.getByRole("dialog");
const focused = (page) => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent);
const ask = async (page) => {
  await visit(page, `/jobs/${running}`, `Job ${running}`);
  await button(page, `Cancel job ${running}`).click();
  await dialog(page).waitFor();
};

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 400]) {
    test(`the question can be read, ${colorScheme}, ${width} pixels`, async (t) => {
      const { page, errors } = await open(t, { colorScheme, viewport: { width, height: 800 } });
      await visit(page, "/nodes", "Nodes");
      await button(page, /^Pause node n0/).waitFor();
      assert.deepEqual(await accessibility(page), []);
      await ask(page);
      assert.deepEqual(await accessibility(page), []);
      await shot(page, `question-${colorScheme}-${width}`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width);
      const box = await dialog(page).boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= width, JSON.stringify(box));
      assert.deepEqual(errors, []);
    });
  }
}

test("a question that is closed changes nothing, and the focus returns", async (t) => {
  const { page, errors } = await open(t);
  await ask(page);
  assert.equal(await focused(page), "Back");
  assert.match(await dialog(page).textContent(), new RegExp(`Cancel job ${running}.*4 now`));
  await page.keyboard.press("g");
  await page.keyboard.press("n");
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  await until(page, () => (document.activeElement.getAttribute("aria-label") ?? "").startsWith("Cancel job"));
  await page.keyboard.press("Enter");
  await dialog(page).waitFor();
  await page.keyboard.press("Enter");
  await dialog(page).waitFor({ state: "detached" });
  assert.equal(await state(running), "running");
  assert.deepEqual(errors, []);
});

test("a refusal is shown as text, and the buttons have no effect meanwhile", async (t) => {
  const { page } = await open(t);
  let sent = 0, answer;
  await page.route("**/api/v1/jobs/*/cancel", async (route) => {
    sent++;
    await new Promise((resolve) => { answer = resolve; });
    await route.fulfill({ status: 400, contentType: "application/json", body: JSON.stringify({ error: "<b>no</b>", hint: "wait" }) });
  });
  await ask(page);
  const confirm = dialog(page).getByRole("button").first();
  await confirm.click();
  await until(page, () => document.querySelector("dialog .buttons button").disabled);
  assert.ok(await page.locator("main .change").first().isDisabled());
  await confirm.click({ force: true });
  await page.keyboard.press("Enter");
  assert.equal(sent, 1);
  answer();
  await page.locator("[role=status]", { hasText: `Cancel job ${running} sleep: <b>no</b> (wait)` }).waitFor();
  await dialog(page).waitFor({ state: "detached" });
  await until(page, () => (document.activeElement.getAttribute("aria-label") ?? "").startsWith("Cancel job"));
  assert.deepEqual(await accessibility(page), []);
  assert.equal(await state(running), "running");
});

test("a node is paused and resumed", async (t) => {
  const { page, errors } = await open(t);
  await visit(page, "/nodes", "Nodes");
  await button(page, /^Pause node n1/).click();
  await dialog(page).getByRole("button", { name: /^Pause node n1/ }).click();
  await page.locator("[role=status]", { hasText: "node n1 is paused" }).waitFor();
  await page.locator("main tr", { hasText: "n1" }).locator(".state", { hasText: "up, paused" }).waitFor();
  await visit(page, "/nodes/1", "Node n1");
  assert.equal(await page.locator("[role=status]", { hasText: "is paused" }).count(), 0);
  await button(page, /^Drain node n1/).waitFor();
  await button(page, /^Resume node n1/).click();
  await dialog(page).getByRole("button", { name: /^Resume node n1/ }).click();
  await page.locator("[role=status]", { hasText: "node n1 starts tasks again" }).waitFor();
  await button(page, /^Pause node n1/).waitFor();
  assert.deepEqual(errors, []);
});

test("a job is cancelled by keyboard alone", async (t) => {
  const { page, errors } = await open(t);
  await visit(page, `/jobs/${running}`, `Job ${running}`);
  await button(page, `Cancel job ${running}`).focus();
  await page.keyboard.press("Enter");
  await dialog(page).waitFor();
  await page.keyboard.press("Shift+Tab");
  assert.equal(await focused(page), `Cancel job ${running} sleep`);
  await page.keyboard.press("Enter");
  await page.locator("[role=status]", { hasText: `job ${running} is cancelled` }).waitFor();
  await page.locator("main h1 .state", { hasText: "cancelled" }).waitFor();
  await button(page, `Retry job ${running}`).waitFor();
  assert.equal(await button(page, `Cancel job ${running}`).count(), 0);
  await until(page, () => document.activeElement !== document.body);
  assert.equal(await state(running), "cancelled");
  assert.deepEqual(errors, []);
});

test("an ended job with failures is run again", async (t) => {
  const { page, errors } = await open(t);
  await visit(page, `/jobs/${job}`, `Job ${job}`);
  assert.equal(await button(page, `Cancel job ${job}`).count(), 0);
  await button(page, `Retry job ${job}`).click();
  await dialog(page).getByRole("button", { name: `Retry job ${job}` }).click();
  await page.locator("[role=status]", { hasText: `job ${job}: round 1, 8 tasks to run again` }).waitFor();
  assert.deepEqual(errors, []);
});
