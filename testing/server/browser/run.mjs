// The console in a real browser: a run is watched live, charts and tables show what the journal has, verbs work and
// nobody else's do, every page is usable by eye, keyboard and screen reader, wide and narrow, light and dark, with
// scripts and without. Prints a line of JSON: how many checks there were and which failed. See docs/operate/console.md.
import { writeFileSync } from 'node:fs';
import { ask, axe, check, close, fits, given, go, open, result, same, send, shot, until } from './kit.mjs';

const number = (text) => Number(text.replaceAll(',', ''));
const delivered = async () => (await ask('status')).recipients.delivered;
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
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
    return recipients.pending <= 5 * 12 && recipients.delivered;
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
  await page.click('[data-zoom="in"]');
  check(await width() < whole, 'zoom in');
  await page.click('[data-zoom="all"]');
  same(await width(), whole, 'the whole day again');
  await page.focus('[data-chart="day"]');
  await page.keyboard.press('ArrowRight');
  check(/an hour/.test(await page.locator('#day-readout').innerText()), 'a key reads the chart');
  await go(page, '/statistics');
  same(number(await page.locator('[data-key="total-delivered"]').innerText()), await delivered(), 'the statistics');
  await page.context().close();
}

async function login(page) {
  await go(page, '/login?next=/sites');
  await page.fill('#user', 'operator');
  await page.fill('#password', given.password);
  await page.click('main button.main');
  await page.waitForURL('**/sites');
  check(await page.getByRole('button', { name: 'Log out' }).isVisible(), 'logged in');
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
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.waitForSelector('.said.good');
  same((await ask('status')).suspended, ['site:mx1.one.example'], 'suspended by the page');
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
  await page.getByText('Cannot be undone').click();
  await page.getByLabel('I am sure').check();
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.waitForSelector('.said.good');
  await until('it is gone', async () => ask('queue', 'show', id).then(() => false, () => true));
  return id;
}

async function filters(page) {
  const rows = async (query) => {
    await go(page, `/queue?${query}`);
    return page.locator('#messages ~ .scroll tbody tr').count();
  };
  const all = (await ask('queue')).messages;
  same(await rows(''), all, 'all messages');
  same(await rows('list=news'), all, 'of the list');
  same(await rows('recipient=nobody%40one.example'), 0, 'of nobody');
  same(await rows('site=mx1.dead.example'), all, 'at the site that is down');
  same(await rows('state=held'), 0, 'held');
  same(await rows('age=86400'), 0, 'a day old');
  await go(page, '/queue?list=news');
  await page.getByRole('button', { name: 'Filter', exact: true }).click();
  check(page.url().includes('list=news'), 'the form keeps what it was asked');
}

async function escaped(page) {
  const { oldest_id: id } = await ask('queue');
  await go(page, `/messages/${id}`);
  same(await page.locator('main b, main script').count(), 0, 'replies are text');
  check((await page.locator('main').innerText()).includes('<b>'), 'the reply is shown as it came');
}

/** Every page, in every look and size. */
async function everyPage(paths, state) {
  const looks = [['wide', 'light'], ['wide', 'dark'], ['phone', 'light'], ['phone', 'dark']];
  await Promise.all(looks.map(async ([size, look], at) => {
    const page = await open({ size, look, state });
    for (const [name, path] of paths) {
      const where = `${name}, ${size}, ${look}`;
      await go(page, path);
      if (await page.locator('[data-chart][data-from]').count()) await page.waitForSelector('[data-chart][data-drawn]');
      await axe(page, where, at === 0 || at === 3 ? undefined : ['color-contrast', 'target-size']);
      await fits(page, where);
      same(await page.locator('h1').count(), 1, `one heading at ${where}`);
      await shot(page, `${name}-${size}-${look}`);
    }
    await page.context().close();
  }));
}

async function keyboard(paths) {
  const page = await open();
  for (const [name, path] of paths) {
    await go(page, path);
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
    for (const [name, path] of paths) {
      await go(page, path);
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
  await login(page);
  const state = await page.context().storageState();
  await nobodyElse(state);
  const removed = await verbs(page);
  await filters(page);
  await escaped(page);
  const { oldest_id: id } = await ask('queue');
  const paths = [['now', '/'], ['days', '/days'], ['statistics', '/statistics'], ['queue', '/queue'], ['message', `/messages/${id}`],
    ['gone', `/messages/${removed}`], ['recipient', '/recipient?address=ann1%40one.example'], ['sites', '/sites'],
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
const summary = JSON.stringify({ checks: result.checks, faults: result.faults.length, what: result.faults });
writeFileSync(`${given.shots}/result.json`, summary);
console.log(summary);
process.exit(result.faults.length ? 1 : 0);
