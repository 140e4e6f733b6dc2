// What the checks share: a browser, counted checks, the server's own command line.
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdirSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const run = promisify(execFile);
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** How long anything is waited for; far beyond what it takes on a busy machine. */
export const PATIENCE_MS = 90_000;

export const given = {
  url: process.env.STENTOR_URL,
  stentor: process.env.STENTOR_BIN,
  stentorKit: process.env.STENTOR_KIT_BIN,
  config: process.env.STENTOR_CONFIG,
  smtp: process.env.STENTOR_SMTP,
  password: process.env.STENTOR_PASSWORD,
  shots: process.env.STENTOR_SHOTS ?? 'target/browser',
  chromium: process.env.CHROMIUM ?? '/usr/bin/chromium',
};
mkdirSync(given.shots, { recursive: true });

export const result = { checks: 0, faults: [] };
/** Counts a check; a fault is remembered, and the others go on. */
export function check(holds, what) {
  result.checks += 1;
  if (!holds) {
    result.faults.push(what);
    console.error(`FAULT ${what}`);
  }
}
export const same = (found, wanted, what) => check(
  JSON.stringify(found) === JSON.stringify(wanted), `${what}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`,
);

/** Asks until it holds; the last answer. */
export async function until(what, ask) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** The operator's command line: the data of its first line of JSON. */
export async function ask(...words) {
  const { stdout } = await run(given.stentor, [...words, '--config', given.config, '--json']);
  const line = JSON.parse(stdout.split('\n')[0]);
  return line.data ?? line;
}

/** Hands messages in. */
export async function send(count, to, from = 'writer@home.example') {
  await run(given.stentorKit, ['lab', 'source', given.smtp, '--connections', '2', '--messages', String(count),
    '--from', from, '--run', `b${Date.now()}`, ...to.flatMap((address) => ['--to', address])]);
}

const browser = await chromium.launch({ executablePath: given.chromium, args: ['--no-sandbox', '--disable-gpu'] });
export const close = () => browser.close();

const SIZES = { wide: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

/** A window of its own. What the browser complains about is a fault, unless it is `expected`. */
export async function open({ size = 'wide', look = 'light', scripts = true, state } = {}) {
  const context = await browser.newContext({
    viewport: SIZES[size], colorScheme: look, javaScriptEnabled: scripts, storageState: state, reducedMotion: 'reduce',
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  page.expected = /(?!)/;
  page.on('console', (message) => {
    const text = `${message.text()} ${message.location().url}`;
    if (['error', 'warning'].includes(message.type()) && !page.expected.test(text)) check(false, `console: ${text}`);
  });
  page.on('pageerror', (error) => check(false, `script: ${error.message}`));
  return page;
}

export async function go(page, path) {
  const response = await page.goto(given.url + path, { waitUntil: 'load' });
  check(response.status() < 400, `${path}: ${response.status()}`);
  return response;
}

/** Serious and critical faults that axe-core finds; `rules`: these alone. */
export async function axe(page, where, rules) {
  await page.evaluate(axeSource);
  const faults = await page.evaluate(async (only) => {
    const options = only ? { runOnly: { type: 'rule', values: only } }
      : { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] } };
    const { violations } = await window.axe.run(document, options);
    return violations.filter((v) => ['serious', 'critical'].includes(v.impact))
      .map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.target.join(' ')).join(', ')}`);
  }, rules);
  same(faults, [], `axe at ${where}`);
}

/** The page is no wider than its window. */
export async function fits(page, where) {
  same(await page.evaluate(() => Math.max(0, document.documentElement.scrollWidth - innerWidth)), 0, `${where} is too wide`);
}

export const shot = (page, name) => page.screenshot({ path: `${given.shots}/${name}.png`, fullPage: true });
