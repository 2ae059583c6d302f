// A browser for the tests of the page: it collects errors, and refuses other hosts.

import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const url = process.env.STARLING_URL;
export const job = process.env.STARLING_JOB;
export const address = new URL(url);
const root = `${address.origin}${address.pathname}`;
const shots = process.env.STARLING_SCREENSHOTS;

/** Opens the page. `errors` has all that should not be: errors, alerts, requests to other hosts. */
export const open = async (t, options = {}) => {
  const browser = await chromium.launch({
    executablePath: process.env.STARLING_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"],
  });
  t.after(() => browser.close());
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(`error: ${error.message}`));
  page.on("console", (line) => { if (line.type() === "error") errors.push(`console: ${line.text()}`); });
  page.on("dialog", (dialog) => { errors.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => {
    const to = new URL(request.url());
    if (to.protocol !== "data:" && to.origin !== address.origin) errors.push(`request: ${request.url()}`);
    if (request.url().includes(address.hash.slice(3))) errors.push("the token is in an address");
  });
  await page.goto(url);
  return { context, page, errors };
};

/** Goes to a page by its path, and waits for its heading. */
export const visit = async (page, path, heading) => {
  await page.goto(`${root}#${path}`);
  await page.locator("main h1", { hasText: heading }).waitFor();
};

export const shot = async (page, name) => {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
};

/** Waits until a function of the page returns true. The rules of the page forbid the polling of the library. */
export const until = async (page, condition) => {
  for (let tries = 0; tries < 600; tries++) {
    if (await page.evaluate(condition)) return;
    await page.waitForTimeout(50);
  }
  throw new Error(`never true: ${condition}`);
};

/** Problems for people with assistive programs. */
export const accessibility = async (page) => {
  const source = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
  const { readFileSync } = await import("node:fs");
  await page.evaluate(readFileSync(source, "utf8"));
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] }));
  return found.violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
};

export const pages = [
  ["/", "Overview"], ["/jobs", "Jobs"], ["/nodes", "Nodes"], ["/nodes/0", "Node n0"], ["/stalls", "Stalls"], ["/store", "Store"],
  ["/events", "Events"], [`/jobs/${job}`, `Job ${job}`], [`/jobs/${job}/timeline`, `Job ${job}`], [`/jobs/${job}/kinds`, `Job ${job}`],
  [`/jobs/${job}/failures`, `Job ${job}`], [`/jobs/${job}/data`, `Job ${job}`], [`/jobs/${job}/tasks`, `Job ${job}`],
];
