// The console's behaviour: menu, numbers that keep up, charts. Pages are whole without it.
'use strict';
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // The sections behind a button where it is narrow.
  const menu = document.querySelector('.menu');
  const sections = document.getElementById('sections');
  menu?.addEventListener('click', () => {
    const isOpen = sections.classList.toggle('open');
    menu.setAttribute('aria-expanded', String(isOpen));
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !sections?.classList.contains('open')) return;
    sections.classList.remove('open');
    menu.setAttribute('aria-expanded', 'false');
    menu.focus();
  });

  // All rows of a table ticked, or none.
  for (const button of all('[data-tick-all]')) {
    button.addEventListener('click', () => {
      const boxes = all(`input[type="checkbox"][form="${button.dataset.tickAll}"]`);
      const areAll = boxes.every((box) => box.checked);
      for (const box of boxes) box.checked = !areAll;
      button.textContent = areAll ? 'Select all' : 'Select none';
    });
  }

  // Charts whose numbers are in the page, and those that are fetched.
  const charts = new Map();
  function drawAll() {
    for (const element of all('[data-chart]')) {
      if (!charts.has(element)) charts.set(element, stentorCharts.make(element));
      const series = document.getElementById(element.dataset.series ?? '');
      if (series) charts.get(element).show(JSON.parse(series.textContent));
    }
  }
  drawAll();

  async function fetched(element) {
    const response = await fetch(element.dataset.from);
    if (!response.ok) throw new Error(`${response.status}`);
    const data = await response.json();
    const chart = charts.get(element);
    const shown = new Set();
    for (const box of all(`[data-overlay-of="${element.id}"]`)) {
      if (box.checked) shown.add(box.value);
      box.addEventListener('change', () => {
        if (box.checked) shown.add(box.value); else shown.delete(box.value);
        chart.draw();
      });
    }
    chart.show({ ...data, shown });
  }
  for (const element of all('[data-chart][data-from]')) {
    fetched(element).catch(() => { element.textContent = 'The chart could not be loaded. The table has its numbers.'; });
  }
  for (const button of all('[data-zoom]')) {
    button.addEventListener('click', () => charts.get(document.getElementById(button.dataset.of))?.zoom(button.dataset.zoom));
  }

  // Parts of a page that keep up: the page is asked for again, and what changed is put in its place. A part in which
  // somebody is (focus or selected text) stays as it is.
  const live = document.querySelector('[data-live]');
  if (live) {
    const every = Number(live.dataset.live) * 1000;
    const pause = document.getElementById('pause');
    const news = document.getElementById('news');
    let [isPaused, isLost] = [false, false];
    const inUse = (part) => part.contains(document.activeElement)
      || (!getSelection().isCollapsed && part.contains(getSelection().anchorNode));
    const update = async () => {
      const response = await fetch(location.href, { cache: 'no-store', signal: AbortSignal.timeout(10_000) });
      if (!response.ok) throw new Error(`${response.status}`);
      const page = new DOMParser().parseFromString(await response.text(), 'text/html');
      for (const part of all('[data-part]')) {
        const fresh = page.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
        if (!fresh || inUse(part) || part.innerHTML === fresh.innerHTML) continue;
        part.replaceChildren(...fresh.childNodes);
      }
      drawAll();
      live.dataset.updates = String(Number(live.dataset.updates ?? 0) + 1);
    };
    const tick = async () => {
      if (!isPaused && !document.hidden) {
        try {
          await update();
          if (isLost) news.textContent = 'The server responds again.';
          isLost = false;
        } catch {
          if (!isLost) news.textContent = 'The server does not respond; the page is out of date.';
          isLost = true;
        }
      }
      setTimeout(tick, every);
    };
    pause.hidden = false;
    pause.addEventListener('click', () => {
      isPaused = !isPaused;
      pause.setAttribute('aria-pressed', String(isPaused));
    });
    setTimeout(tick, every);
  }
})();
