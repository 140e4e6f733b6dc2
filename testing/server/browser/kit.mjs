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
  /** Recipients that wait before the first check, and will. */
  waiting: Number(process.env.STENTOR_WAITING ?? 0),
  /** Of each post. */
  ofPost: Number(process.env.STENTOR_WAITING_OF_A_POST ?? 0),
  shots: process.env.STENTOR_SHOTS ?? 'target/browser',
  chromium: process.env.CHROMIUM ?? '/usr/bin/chromium',
};
mkdirSync(given.shots, { recursive: true });

/** What was counted: pages looked at, and of them what axe-core, clipped text and height came to. */
export const result = { checks: 0, faults: [], pages: 0, axe: 0, clipped: 0, tall: 0, height: 0 };
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

export const SIZES = {
  phone: { width: 390, height: 844 }, tablet: { width: 768, height: 1024 }, wide: { width: 1280, height: 900 },
  huge: { width: 1920, height: 1080 },
};
/** No page is longer. */
const HEIGHT_MAX = 4000;

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

export async function go(page, path, status = 200) {
  const response = await page.goto(given.url + path, { waitUntil: 'load' });
  same(response.status(), status, path);
  return response;
}

/** All that axe-core finds; `rules`: these alone. */
export async function axe(page, where, rules) {
  await page.evaluate(axeSource);
  const faults = await page.evaluate(async (only) => {
    const options = only ? { runOnly: { type: 'rule', values: only } }
      : { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] } };
    const { violations } = await window.axe.run(document, options);
    return violations.map((v) => `${v.impact} ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.target.join(' ')).join(', ')}`);
  }, rules);
  result.axe += faults.length;
  same(faults, [], `axe at ${where}`);
}

/** Elements whose text is wider than they are. */
const tooWide = () => {
  const name = (e) => `${e.tagName.toLowerCase()}.${e.className} "${e.textContent.trim().slice(0, 40)}"`;
  const isMeant = (e) => e.closest('svg, select, .chart, .hidden, .skip');
  // What is there for screen readers alone has a pixel.
  const isHidden = (e) => e.closest('thead, caption')?.clientWidth === 1;
  return [...document.querySelectorAll('body *')]
    .filter((e) => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1 && e.checkVisibility() && !isMeant(e) && !isHidden(e))
    .map((e) => `${name(e)} ${e.scrollWidth} in ${e.clientWidth}`);
};

/** The page is no wider than its window and not too long, and none of its text is cut off. */
export async function fits(page, where) {
  const size = await page.evaluate(() => {
    const { scrollWidth, scrollHeight } = document.documentElement;
    return { over: Math.max(0, scrollWidth - innerWidth), height: scrollHeight };
  });
  const clipped = await page.evaluate(tooWide);
  result.clipped += clipped.length + (size.over > 0 ? 1 : 0);
  result.tall += size.height > HEIGHT_MAX ? 1 : 0;
  result.height = Math.max(result.height, size.height);
  same(size.over, 0, `${where} is too wide`);
  same(clipped, [], `text is cut off at ${where}`);
  check(size.height <= HEIGHT_MAX, `${where} is ${size.height} pixels long`);
}

export const shot = (page, name) => page.screenshot({ path: `${given.shots}/${name}.png`, fullPage: true });
