// The console in a real browser: a run is watched live, charts and tables show what the journal has, verbs work and
// nobody else's do, every page is usable by eye, keyboard and screen reader, wide and narrow, light and dark, with
// scripts and without. Prints a line of JSON: how many checks there were and which failed. See docs/operate/console.md.
import { writeFileSync } from 'node:fs';
import { SIZES, ask, axe, check, close, fits, given, go, open, result, same, send, shot, until } from './kit.mjs';

const number = (text) => Number(text.replaceAll(',', ''));
const delivered = async () => (await ask('status')).recipients.delivered;
/** What a chart has drawn, in recipients. */
const drawn = (page, kind) => page.evaluate((name) => {
  const chart = document.querySelector(`[data-chart="${name}"]`).chart;
  const [all, good] = name === 'rates' ? [1, 2] : [1, 2];
  const per = name === 'rates' ? chart.data.every / 3600 : 1 / 60;
  const total = (row) => Math.round(chart.plot.data[row].reduce((a, b) => a + b, 0) * per);
  return { delivered: total(good), failed: total(all) - total(good) };
}, kind);

async function watched() {
  const page = await open();
  await go(page, '/');
  const figure = page.locator('[data-key="delivered"]');
  const before = number(await figure.innerText());
  const start = await delivered();
  await send(5, ['news@lists.test']);
  // What can be delivered is; the rest waits for a host that is down and one that wants us to come back.
  const end = await until('all that can go has gone', async () => {
    const { recipients } = await ask('status');
    return recipients.pending <= given.waiting + 5 * given.ofPost && recipients.delivered > start && recipients.delivered;
  });
  check(end > start, `the lab took mail: ${start}, then ${end}`);
  await until('the page shows it', async () => number(await figure.innerText()) === await delivered());
  check(before < end, `it rose on the page: ${before}, then ${end}`);
  check(await page.evaluate(() => Number(document.querySelector('[data-live]').dataset.updates)) > 0, 'without a reload');
  if (!await page.locator('[data-chart="rates"]').count()) {
    await page.context().close();
    return;
  }
  await until('the chart has it', async () => (await drawn(page, 'rates')).delivered === await delivered());
  same((await drawn(page, 'rates')).delivered, await delivered(), 'the chart of now');
  await page.click('#pause');
  same(await page.getAttribute('#pause', 'aria-pressed'), 'true', 'updates can be paused');
  await page.context().close();
}

async function days() {
  const page = await open();
  // The server's zone is 5:30 east; a pointer on a time shows UTC.
  await go(page, '/queue');
  const time = page.locator('.tile time').last();
  const [local, utc] = [await time.innerText(), await time.getAttribute('title')];
  same(Date.parse(`${local.replace(' ', 'T')}Z`) - Date.parse(utc.replace(' UTC', 'Z').replace(' ', 'T')), 19_800_000, 'times are local');
  check((await page.locator('footer').innerText()).includes('(+0530)'), 'the foot names the zone');
  await until('the history has it', async () => {
    await go(page, '/days');
    await page.waitForSelector('[data-chart="day"][data-drawn]');
    return (await drawn(page, 'day')).delivered === await delivered();
  });
  same((await drawn(page, 'day')).delivered, await delivered(), 'the chart of the day');
  const total = await page.locator('[data-key="day-delivered"]').innerText();
  same(number(total), await delivered(), 'the table of the day');
  const width = () => page.evaluate(() => {
    const { min, max } = document.querySelector('[data-chart="day"]').chart.plot.scales.x;
    return max - min;
  });
  const whole = await width();
  const marks = await page.evaluate(() => {
    const { data } = document.querySelector('[data-chart="day"]').chart;
    return { messages: data.arrivals.reduce((a, b) => a + b, 0), last: data.at.findLast((_, i) => data.arrivals[i]) };
  });
  same(marks.messages, number(await page.locator('tfoot td').first().innerText()), 'marks of messages that came in');
  check(marks.last <= Date.now() / 1000, 'no mark is in the future');
  await page.click('[data-zoom="in"]');
  check(await width() < whole, 'zoom in');
  const has = await page.evaluate((at) => {
    const { min, max } = document.querySelector('[data-chart="day"]').chart.plot.scales.x;
    return min <= at && at <= max;
  }, marks.last);
  check(has, 'zoom begins at the data');
  await page.click('[data-zoom="all"]');
  same(await width(), whole, 'the whole day again');
  await page.focus('[data-chart="day"]');
  await page.keyboard.press('ArrowRight');
  check(/per hour/.test(await page.locator('#day-readout').innerText()), 'a key reads the chart');
  await go(page, '/statistics');
  same(number(await page.locator('[data-key="total-delivered"]').innerText()), await delivered(), 'the statistics');
  await page.context().close();
}

async function login(page) {
  await go(page, '/queue?state=held');
  await page.getByRole('link', { name: 'Log in' }).first().click();
  await page.fill('#user', 'operator');
  await page.fill('#password', 'wrong');
  await page.click('main button.main');
  await page.waitForSelector('.said.bad');
  same(await page.inputValue('#user'), 'operator', 'the name is kept');
  await page.fill('#password', given.password);
  await page.click('main button.main');
  await page.waitForURL('**/queue?state=held');
  check(await page.getByRole('button', { name: 'Log out' }).isVisible(), 'logged in, where it was wanted');
}

/** What does not exist says so, and an end of the session leads to the form and back. */
async function missing() {
  const page = await open();
  page.expected = /404|400/;
  await go(page, '/no-such-page', 404);
  same(await page.locator('h1').innerText(), 'Page not found', 'an unknown page says so');
  check(await page.locator('#sections a').count() > 10, 'with the menu');
  await go(page, '/messages/none', 400);
  same(await page.locator('h1').innerText(), 'Invalid queue ID', 'a wrong queue ID says so');
  same((await page.request.get(`${given.url}/api/v1/none`)).headers()['content-type'], 'application/json', 'the API has its own answer');
  const ended = await page.request.post(`${given.url}/act`, {
    form: { verb: 'flush' }, headers: { accept: 'text/html', referer: `${given.url}/sites?rows=5` }, maxRedirects: 0,
  });
  same([ended.status(), ended.headers().location], [303, '/login?failed=expired&next=%2Fsites%3Frows%3D5'], 'an ended session');
  await page.context().close();
}

async function nobodyElse(state) {
  const stranger = await open();
  const form = { site: 'mx1.one.example', verb: 'suspend' };
  const post = (page, more, headers = {}) => page.request.post(`${given.url}/act`, { form: { ...form, ...more }, headers });
  same((await post(stranger, {})).status(), 401, 'a change without a login');
  const page = await open({ state });
  same((await post(page, {})).status(), 403, 'a change without the token');
  same((await post(page, { csrf: 'wrong' })).status(), 403, 'a change with a wrong token');
  await go(page, '/sites');
  const csrf = await page.locator('input[name="csrf"]').first().inputValue();
  same((await post(page, { csrf }, { origin: 'http://evil.example' })).status(), 403, "a change from another site's page");
  same((await ask('status')).suspended, [], 'nothing was suspended');
  await stranger.context().close();
  await page.context().close();
}

async function verbs(page) {
  const before = await delivered();
  await go(page, '/site?name=one.example');
  await page.fill('#act-this-reason', 'a test');
  await page.selectOption('#act-this-lasts', 'other');
  await page.fill('#act-this-other', '1h30m');
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.waitForSelector('.said.good');
  check(/^Suspended until .* \+0530\.$/.test(await page.locator('.said').innerText()), 'the page says until when, in the zone');
  const { suspended, suspended_until: ends, now } = await ask('status');
  same(suspended, ['site:mx1.one.example'], 'suspended by the page');
  check(Math.abs(ends[suspended[0]] - now - 5_400_000) < 600_000, 'for as long as the page said');
  check(await page.locator('.badge', { hasText: 'suspended' }).isVisible(), 'the page says so');
  await send(1, ['ann1@one.example']);
  await until('it waits', async () => (await ask('site', 'one.example')).messages === 1);
  same(await delivered(), before, 'nothing goes there');
  await shot(page, 'suspended');
  await go(page, '/site?name=one.example');
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.waitForSelector('.said.good');
  await until('it goes', async () => await delivered() === before + 1);
  same((await ask('status')).suspended, [], 'resumed by the page');
  // A list, after the question how long; and back from the list of suspensions.
  await go(page, '/lists');
  await page.getByRole('button', { name: 'Suspend' }).click();
  same(await page.locator('h1').innerText(), 'Suspend list news?', 'how long is asked');
  check(!await page.locator('#suspend-other').isVisible(), 'no other duration unless it is chosen');
  await shot(page, 'suspend');
  await page.selectOption('#suspend-lasts', '4h');
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.waitForSelector('.said.good');
  check(/until \d{4}-/.test(await page.locator('tbody').innerText()), 'the list has the end');
  await go(page, '/sites');
  check(/in 3 h 59 min|in 4 h/.test(await page.locator('#suspended ~ .scroll tbody').innerText()), 'suspensions have their ends');
  await shot(page, 'suspensions');
  await page.locator('#suspended ~ .scroll').getByRole('button', { name: 'Resume' }).click();
  await page.waitForSelector('.said.good');
  same((await ask('status')).suspended, [], 'resumed from the list of suspensions');

  await go(page, '/posts');
  await page.locator('tbody a.id').first().click();
  await page.waitForURL('**/messages/*');
  const id = page.url().split('/').pop();
  await page.getByRole('button', { name: 'Hold' }).click();
  await page.waitForSelector('.said.good');
  same((await ask('queue', 'show', id)).held, true, 'held by the page');
  await page.getByRole('button', { name: 'Release' }).click();
  await page.waitForSelector('.said.good');
  same((await ask('queue', 'show', id)).held, false, 'let go by the page');
  const waiting = (await ask('queue', 'show', id)).fates.pending;
  await page.getByRole('button', { name: 'Remove' }).click();
  const title = `Remove ${waiting} recipients of 1 message?`;
  same(await page.locator('h1').innerText(), title, 'the question has the count');
  await axe(page, 'the question');
  await fits(page, 'the question');
  await shot(page, 'confirm-wide-light');
  await page.getByRole('link', { name: 'Cancel' }).click();
  await page.waitForURL('**/messages/*');
  same((await ask('queue', 'show', id)).fates.pending, waiting, 'nothing was removed yet');
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.fill('#reason', 'a test of <b>removal</b>');
  await page.getByRole('button', { name: `Remove ${waiting} recipients` }).click();
  await page.waitForSelector('.said.good');
  await until('it is gone', async () => ask('queue', 'show', id).then(() => false, () => true));
  await until('the audit has it', async () => {
    await go(page, '/audit');
    return (await page.locator('main').innerText()).includes('a test of <b>removal</b>');
  });
  same(await page.locator('main b').count(), 0, 'reasons are text');
  return id;
}

/** Rows ticked in the queue, and all at once. */
async function bulk(page) {
  await go(page, '/queue?list=news');
  await page.getByRole('button', { name: 'Hold' }).click();
  await page.waitForSelector('.said.bad');
  check(/tick the messages to hold/.test(await page.locator('.said').innerText()), 'nothing ticked is said');
  const boxes = page.locator('input[name="id"]');
  await boxes.nth(0).check();
  await boxes.nth(1).check();
  await page.getByRole('button', { name: 'Hold' }).click();
  check(/^Hold 2 messages with \d+ recipients\?$/.test(await page.locator('h1').innerText()), 'two are asked about');
  same((await ask('queue')).held, 0, 'nothing is held yet');
  await page.getByRole('button', { name: 'Hold 2 messages' }).click();
  await page.waitForSelector('.said.good');
  same((await ask('queue')).held, 2, 'two are held');
  await page.getByRole('button', { name: 'Select all' }).click();
  same(await page.locator('input[name="id"]:not(:checked)').count(), 0, 'all are ticked');
  await page.selectOption('#scope', 'matching');
  await page.getByRole('button', { name: 'Release' }).click();
  await page.getByRole('button', { name: 'Release 2 messages' }).click();
  await page.waitForSelector('.said.good');
  same((await ask('queue')).held, 0, 'all that match are released');
  await go(page, '/sites');
  await page.getByRole('button', { name: 'Try everything now' }).click();
  check(/^Try [\d,]+ recipients of \d+ messages at \d+ sites now\?$/.test(await page.locator('h1').innerText()), 'how much is tried is asked');
  await page.getByRole('button', { name: /^Try .* now$/ }).click();
  await page.waitForSelector('.said.good');
}

/** The recipients of a large message, a page at a time. */
async function paged(page) {
  await go(page, '/queue');
  await page.locator('tr', { hasText: 'and 149 more' }).locator('a.id').click();
  const first = await page.locator('#pending ~ .scroll tbody th').allInnerTexts();
  same(first.length, 100, 'a page of recipients');
  const path = new URL(page.url()).pathname;
  await page.getByRole('link', { name: 'Next page' }).click();
  await page.waitForURL('**after=**');
  const second = await page.locator('#pending ~ .scroll tbody th').allInnerTexts();
  same(new Set([...first, ...second]).size, 150, 'each is on one page');
  await go(page, '/posts');
  const text = await page.locator('main').innerText();
  check(text.includes('Grüße an alle <b>') && text.includes('Ann Ö.'), 'posts have subject and author, decoded');
  return path;
}

async function filters(page) {
  const rows = async (query) => {
    await go(page, `/queue?${query}`);
    return page.locator('#messages ~ .scroll tbody tr').count();
  };
  const all = (await ask('queue')).messages;
  same(await rows(''), all, 'all messages');
  same(await rows('list=news'), all - 1, 'of the list');
  same(await rows('recipient=nobody%40one.example'), 0, 'of nobody');
  same(await rows('site=mx1.dead.example'), all, 'at the site that is down');
  same(await rows('state=held'), 0, 'held');
  same(await rows('age=86400'), 0, 'a day old');
  await go(page, '/queue?list=news');
  await page.getByRole('button', { name: 'Filter', exact: true }).click();
  check(page.url().includes('list=news'), 'the form keeps what it was asked');
}

async function escaped(page) {
  await go(page, '/queue?list=news');
  const path = await page.locator('tbody a.id').first().getAttribute('href');
  await go(page, path);
  same(await page.locator('main b, main script').count(), 0, 'replies are text');
  check((await page.locator('main').innerText()).includes('<b>Later</b>'), 'the reply is shown as it came');
  return path;
}

/** Every page, in every look and size. All rules see each page wide and light, and narrow and dark; what depends on look
 *  and size is looked at in each. */
async function everyPage(paths, state) {
  const looks = Object.keys(SIZES).flatMap((size) => ['light', 'dark'].map((look) => [size, look]));
  await Promise.all(looks.map(async ([size, look]) => {
    const page = await open({ size, look, state });
    page.expected = /404/;
    const isFull = [size, look].join() === 'wide,light' || [size, look].join() === 'phone,dark';
    for (const [name, path, status] of paths) {
      const where = `${name}, ${size}, ${look}`;
      result.pages += 1;
      await go(page, path, status);
      if (await page.locator('[data-chart][data-from]').count()) await page.waitForSelector('[data-chart][data-drawn]');
      await axe(page, where, isFull ? undefined : ['color-contrast', 'target-size']);
      await fits(page, where);
      same(await page.locator('h1').count(), 1, `one heading at ${where}`);
      await shot(page, `${name}-${size}-${look}`);
    }
    await page.context().close();
  }));
}

async function keyboard(paths) {
  const page = await open();
  for (const [name, path, status] of paths) {
    await go(page, path, status);
    await page.keyboard.press('Tab');
    same(await page.evaluate(() => document.activeElement.className), 'skip', `${name}: the first stop skips`);
    await page.keyboard.press('Enter');
    same(await page.evaluate(() => document.activeElement.id), 'main', `${name}: to the content`);
    await go(page, path);
    const wanted = await page.evaluate(() => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')]
      .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled).length);
    const stops = await page.evaluate(() => { window.stops = new Set(); return 0; });
    for (let n = stops; n < wanted + 3; n += 1) {
      await page.keyboard.press('Tab');
      const lit = await page.evaluate(() => {
        const here = document.activeElement;
        if (here === document.body) return true;
        window.stops.add(here);
        return getComputedStyle(here).outlineStyle !== 'none';
      });
      if (!lit) check(false, `${name}: a focus that cannot be seen`);
    }
    const reached = await page.evaluate(() => window.stops.size);
    check(reached >= wanted, `${name}: ${reached} of ${wanted} can be reached by keys`);
  }
  await page.context().close();
  const phone = await open({ size: 'phone' });
  await go(phone, '/queue');
  const menu = phone.getByRole('button', { name: 'Menu' });
  check(!await phone.locator('#sections').isVisible(), 'the menu is closed');
  await menu.focus();
  await phone.keyboard.press('Enter');
  same(await menu.getAttribute('aria-expanded'), 'true', 'the menu opens');
  check(await phone.locator('#sections').isVisible(), 'the menu is open');
  await phone.keyboard.press('Escape');
  check(!await phone.locator('#sections').isVisible(), 'the menu closes');
  await phone.context().close();
}

async function looks() {
  const page = await open();
  await go(page, '/queue');
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.locator('button[name="theme"]').click();
  await page.waitForSelector('html[data-theme="dark"]');
  check(await ground() !== light, 'the switch makes it dark');
  await page.context().close();
}

async function withoutScripts(paths) {
  for (const size of ['wide', 'phone']) {
    const page = await open({ size, scripts: false });
    page.expected = /40[34]/;
    for (const [name, path, status] of paths) {
      // Nobody is logged in here.
      await go(page, path, path.startsWith('/configuration') ? 403 : status);
      same(await page.locator('main h1').count(), 1, `${name} without scripts`);
      check(await page.locator('#sections').isVisible(), `${name} without scripts: the sections`);
      same(await page.locator('.menu:visible, #pause:visible').count(), 0, `${name} without scripts: no dead button`);
    }
    await go(page, '/');
    same(number(await page.locator('[data-key="delivered"]').innerText()), await delivered(), 'numbers without scripts');
    await page.context().close();
  }
}

try {
  await watched();
  await days();
  const page = await open();
  page.expected = /40[01]/;
  await login(page);
  const state = await page.context().storageState();
  await missing();
  await nobodyElse(state);
  const large = await paged(page);
  const removed = await verbs(page);
  await filters(page);
  await bulk(page);
  const message = await escaped(page);
  const paths = [['now', '/'], ['days', '/days'], ['statistics', '/statistics'], ['queue', '/queue'], ['message', message],
    ['large', large],
    ['gone', `/messages/${removed}`], ['none', '/no-such-page', 404], ['lists', '/lists'], ['webhooks', '/webhooks'], ['audit', '/audit'],
    ['configuration', '/configuration'], ['keys', '/configuration?keys=all'],
    ['empty', '/queue?state=held'], ['login-again', '/login?failed=wrong&user=ann'],
    ['straggler', '/recipient?address=reader1%40dead.example'], ['late', '/site?name=later.example'], ['list-posts', '/posts?list=news'],
    ['by-site', '/statistics?by=site&hours=168'], ['dmarc', '/dmarc?days=0'],
    ['recipient', '/recipient?address=ann1%40one.example'], ['sites', '/sites'],
    ['site', '/site?name=dead.example'], ['stragglers', '/stragglers'], ['posts', '/posts'], ['storage', '/storage'], ['login', '/login']];
  await everyPage(paths, state);
  await keyboard(paths.filter(([name]) => ['now', 'days', 'queue', 'site'].includes(name)));
  await looks();
  await withoutScripts(paths);
  await page.context().close();
} catch (error) {
  check(false, error.stack);
} finally {
  await close();
}
const { faults, ...counts } = result;
const summary = JSON.stringify({ ...counts, faults: faults.length, what: faults });
writeFileSync(`${given.shots}/result.json`, summary);
console.log(summary);
process.exit(result.faults.length ? 1 : 0);
