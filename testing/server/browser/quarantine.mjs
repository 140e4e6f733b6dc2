// Kept messages in a real browser: whatever they say, no script of theirs runs and nothing is loaded from elsewhere, on the console's pages,
// on the page that a recipient's link opens, and in the digest as a mail program that shows HTML would show it. A page that
// does show their markup is looked at first: it must be found out. Then the pages by eye and by axe-core, as all others.
// Prints a line of JSON. See docs/operate/quarantine.md.
import { readFileSync, writeFileSync } from 'node:fs';
import { SIZES, axe, check, close, fits, given, go, open, result, same, shot } from './kit.mjs';

/** Payloads, queue ids, links without their host, HTML parts of digests. */
const corpus = JSON.parse(readFileSync(process.env.STENTOR_CORPUS, 'utf8'));
const figures = { shown: 0, scripts: 0, requests: 0, markup: 0, caught_scripts: 0, caught_requests: 0, what: [] };

/** A window that counts: scripts that ran, dialogs, and requests to other origins, none of which goes out. */
async function watched(own) {
  const page = await open();
  // What is blocked has been tried; it is counted below.
  page.expected = /./;
  const seen = { scripts: [], requests: [] };
  await page.context().exposeFunction('xss', () => seen.scripts.push('xss()'));
  page.on('dialog', (dialog) => { seen.scripts.push(dialog.message()); dialog.dismiss(); });
  await page.context().addInitScript(() => {
    window.addEventListener('securitypolicyviolation', (event) => window.refused = [...window.refused ?? [], `${event.violatedDirective} ${event.blockedURI}`]);
  });
  await page.context().route(/.*/, (route) => {
    const url = route.request().url();
    if (own.some((origin) => url.startsWith(origin))) return route.fallback();
    seen.requests.push(url);
    return route.abort();
  });
  return { page, seen };
}

/** Touches everything, as a hand that slips would. */
const touched = (page) => page.evaluate(() => {
  for (const element of document.querySelectorAll('body *')) {
    for (const kind of ['mouseover', 'mouseenter', 'focus', 'error', 'toggle']) element.dispatchEvent(new Event(kind));
  }
}).catch(() => {}); // It may be on its way to another page: that is counted as a request.

/** What of a page's elements can only be a message's. */
const foreign = (page, hosts) => page.evaluate((ours) => {
  const found = [...document.querySelectorAll('main script, main iframe, main object, main embed, main img, main svg, main style, main link, main meta, main base, main video, main audio, main math')];
  const handlers = [...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => a.name.startsWith('on')));
  const links = [...document.querySelectorAll('[href], [src], [action], [formaction], [srcset], [background], [style]')]
    .filter((e) => e.hasAttribute('style') || e.hasAttribute('background') || !ours.includes(new URL(e.href?.baseVal ?? e.href ?? e.src ?? e.action ?? 'x:', location).host));
  return [...new Set([...found, ...handlers, ...links])].map((e) => e.outerHTML.slice(0, 120));
}, hosts);

/** Ends when what was put in it has had its turn. */
const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))));

async function judged({ page, seen }, where, hosts) {
  await touched(page);
  await settled(page);
  const markup = await foreign(page, hosts);
  const refused = await page.evaluate(() => window.refused ?? []);
  figures.shown += 1;
  figures.scripts += seen.scripts.length;
  figures.requests += seen.requests.length + refused.length;
  figures.markup += markup.length;
  if (seen.scripts.length + seen.requests.length + refused.length + markup.length) {
    figures.what.push(`${where}: ${JSON.stringify([seen, refused, markup]).slice(0, 400)}`);
  }
  seen.scripts.length = seen.requests.length = 0;
}

async function login(page) {
  await page.goto(`${given.url}/login`);
  await page.fill('#user', 'operator');
  await page.fill('#password', given.password);
  await page.click('main button.main');
  await page.waitForURL(`${given.url}/`);
}

/** The eye: the same payloads as markup, on a page without a policy. */
async function selfCheck() {
  const { page, seen } = await watched(['http://self.test/']);
  // What fails there fails on purpose.
  page.removeAllListeners('pageerror');
  let body = '';
  await page.context().route('http://self.test/**', (route) => route.fulfill({ contentType: 'text/html; charset=utf-8', body }));
  for (const payload of corpus.payloads) {
    body = `<!DOCTYPE html><title>x</title><main><p>${payload}</p></main>`;
    await page.goto('http://self.test/', { waitUntil: 'load' }).catch(() => {});
    await touched(page);
    await settled(page).catch(() => {});
    figures.caught_scripts += seen.scripts.length ? 1 : 0;
    figures.caught_requests += seen.requests.length ? 1 : 0;
    seen.scripts.length = seen.requests.length = 0;
  }
  check(figures.caught_scripts > 30 && figures.caught_requests > 20, `markup is found out: ${JSON.stringify(figures)}`);
  await page.context().close();
}

async function corpusPages() {
  const watch = await watched([`${given.url}/`]);
  const { page } = watch;
  const host = new URL(given.url).host;
  await login(page);
  let next = '/quarantine';
  let rows = 0;
  while (next) {
    await go(page, next);
    rows += await page.locator('main tbody tr').count();
    await judged(watch, next, [host]);
    const more = page.locator('a[rel="next"]');
    next = await more.count() ? await more.getAttribute('href') : null;
  }
  same(rows, corpus.ids.length, 'the list has all of them');
  for (const [n, id] of corpus.ids.entries()) {
    await go(page, `/quarantine/${id}`);
    await judged(watch, `/quarantine/${id} ${corpus.payloads[n]}`, [host]);
  }
  const state = await page.context().storageState();
  await page.context().close();
  return state;
}

async function ownPages() {
  const watch = await watched([`${given.url}/`]);
  for (const [n, link] of corpus.links.entries()) {
    await go(watch.page, link);
    check(await watch.page.locator('button').count() === 1, `${link}: one button`);
    await judged(watch, `/kept/ ${corpus.payloads[n]}`, [new URL(given.url).host]);
  }
  await watch.page.context().close();
}

async function digests() {
  const watch = await watched(['http://digest.test/']);
  let body = '';
  await watch.page.context().route('http://digest.test/**', (route) => route.fulfill({ contentType: 'text/html; charset=utf-8', body }));
  for (const [n, html] of corpus.digests.entries()) {
    body = html;
    await watch.page.goto('http://digest.test/');
    const rows = await watch.page.locator('tr').count();
    check(rows > 1, `digest ${n} has ${rows} rows: ${(await watch.page.content()).slice(0, 300)}`);
    await judged(watch, `digest ${n}`, ['q.test', 'digest.test']);
  }
  await watch.page.context().close();
}

/** By eye and by axe-core, in each size and look. */
async function everyPage(state) {
  for (const look of ['light', 'dark']) {
    for (const size of Object.keys(SIZES)) {
      const page = await open({ size, look, state });
      page.expected = /404/;
      const pages = [['quarantine', '/quarantine'], ['kept-message', `/quarantine/${corpus.ids[0]}`], ['kept-plain', `/quarantine/${corpus.plain}`],
        ['kept-own', corpus.plainLink], ['kept-none', '/kept/none', 404]];
      for (const [name, path, status] of pages) {
        await go(page, path, status);
        result.pages += 1;
        const where = `${name} ${size} ${look}`;
        await fits(page, where);
        await axe(page, where);
        await shot(page, `${name}-${size}-${look}`);
      }
      await page.context().close();
    }
  }
}

/** The button, without scripts, as a recipient presses it. */
async function released() {
  const page = await open({ scripts: false, size: 'phone' });
  await go(page, corpus.plainLink);
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:text("Released")');
  await page.goto(given.url + corpus.plainLink);
  same(await page.locator('h1').innerText(), 'Already released', 'a second look says so');
  await page.context().close();
}

try {
  await selfCheck();
  const state = await corpusPages();
  await ownPages();
  await digests();
  await everyPage(state);
  await released();
} catch (error) {
  check(false, error.stack);
} finally {
  await close();
}
const { faults, ...counts } = result;
const summary = JSON.stringify({ ...counts, ...figures, faults: faults.length, what: [...figures.what, ...faults] });
writeFileSync(`${given.shots}/quarantine.json`, summary);
console.log(summary);
process.exit(faults.length ? 1 : 0);
