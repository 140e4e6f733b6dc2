// Charts of the console, drawn by uPlot. Each has its numbers in a table beside it, so that nothing is said by a chart
// alone; zoom has buttons beside dragging, the cursor has keys beside the mouse.
'use strict';
window.stentorCharts = (() => {
  const charts = new Set();
  const utc = (s) => uPlot.tzDate(new Date(s * 1e3), 'Etc/UTC');
  const pad = (n) => String(n).padStart(2, '0');
  const clock = (s, withSeconds) => {
    const t = new Date(s * 1e3);
    return `${pad(t.getUTCHours())}:${pad(t.getUTCMinutes())}${withSeconds ? `:${pad(t.getUTCSeconds())}` : ''}`;
  };
  const grouped = new Intl.NumberFormat('en');
  const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
  const number = (n) => (n == null ? '–' : grouped.format(Math.round(n)));
  const compact = (n) => (n == null ? '' : short.format(n));

  // A custom property may be a pair of colours; what it comes to, only an element knows.
  function colour(name) {
    const probe = document.createElement('span');
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  const font = (px) => `${px}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
  function axis(scale, more) {
    return {
      scale, stroke: colour('--quiet'), font: font(12), grid: { stroke: colour('--line'), width: 1 },
      ticks: { stroke: colour('--line'), width: 1, size: 4 }, ...more,
    };
  }
  const timeAxis = (more) => axis('x', {
    values: (u, splits, _axis, _space, step) => splits.map((s) => clock(s, step < 60)), grid: { show: false }, ...more,
  });
  // From zero to a bit above the highest, and never flat.
  const fromZero = (_u, _min, max) => [0, Math.max(1, (max || 0) * 1.08)];
  const bars = (size) => uPlot.paths.bars({ size: [size, 64], align: 1 });

  // Delivered with failed on top: the sum is drawn first, the delivered over it.
  function stacked(delivered, failed) {
    return delivered.map((n, i) => n + failed[i]);
  }

  class Chart {
    constructor(element, make, read) {
      Object.assign(this, { element, make, read, plot: null, range: null });
      element.chart = this;
      this.readout = document.getElementById(element.dataset.readout ?? '');
      this.idle = this.readout?.textContent ?? '';
      new ResizeObserver(() => this.resize()).observe(element);
      element.addEventListener('keydown', (event) => this.key(event));
      charts.add(this);
    }

    show(data) {
      this.data = data;
      if (this.plot) {
        this.plot.setData(this.make.data(data), false);
        this.plot.setScale('x', this.range ?? { min: data.from, max: data.until });
      } else {
        this.draw();
      }
      this.element.dataset.drawn = data.at?.length ?? data.x?.length ?? '0';
    }

    draw() {
      this.plot?.destroy();
      if (!this.data) return;
      const options = this.make.options(this.data);
      const { width, height } = this.size();
      this.plot = new uPlot({
        width, height, tzDate: utc, legend: { show: false }, padding: [12, 8, 0, 0],
        cursor: { y: false, drag: { x: !!options.zoom, y: false, dist: 8 }, points: { show: false } },
        ...options,
        hooks: {
          ...options.hooks,
          setCursor: [(u) => this.say(u.cursor.idx)],
          setSelect: [(u) => this.selected(u)],
        },
      }, this.make.data(this.data), this.element);
      if (this.range) this.plot.setScale('x', this.range);
    }

    size() {
      return { width: Math.max(120, this.element.clientWidth), height: Math.max(80, this.element.clientHeight) };
    }

    resize() {
      const { width, height } = this.size();
      if (this.plot && (this.plot.width !== width || this.plot.height !== height)) this.plot.setSize({ width, height });
    }

    say(index) {
      if (this.readout) this.readout.textContent = index == null ? this.idle : this.read(this.data, index);
    }

    key(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.plot) return;
      event.preventDefault();
      const x = this.plot.data[0];
      const at = Math.min(x.length - 1, Math.max(0, (this.plot.cursor.idx ?? (step > 0 ? -1 : x.length)) + step));
      this.plot.setCursor({ left: this.plot.valToPos(x[at], 'x') + 0.5, top: 10 });
      this.say(at);
    }

    selected(u) {
      if (u.select.width > 4) this.zoomTo(u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x'));
    }

    zoomTo(min, max) {
      const [first, last] = this.bounds();
      const least = 300;
      if (max - min < least) [min, max] = [(min + max - least) / 2, (min + max + least) / 2];
      if (min < first) [min, max] = [first, Math.min(last, first + max - min)];
      if (max > last) [min, max] = [Math.max(first, last - (max - min)), last];
      this.range = max - min >= last - first - 1 ? null : { min, max };
      this.plot.setScale('x', { min, max });
      this.plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    }

    bounds() {
      return [this.data.from, this.data.until];
    }

    zoom(verb) {
      if (!this.plot) return;
      const { min, max } = this.plot.scales.x;
      const width = max - min;
      const [first, last] = this.bounds();
      if (verb === 'in') this.zoomTo(min + width / 4, max - width / 4);
      if (verb === 'out') this.zoomTo(min - width / 2, max + width / 2);
      if (verb === 'left') this.zoomTo(min - width / 2, max - width / 2);
      if (verb === 'right') this.zoomTo(min + width / 2, max + width / 2);
      if (verb === 'all') this.zoomTo(first, last);
    }
  }

  // What happens now: delivered and failed per hour, a bar for each few seconds.
  const rates = {
    data: (d) => {
      const hourly = (counts) => counts.map((n) => (n * 3600) / d.every);
      return [d.at, hourly(stacked(d.delivered, d.failed)), hourly(d.delivered)];
    },
    options: (d) => ({
      scales: { x: { time: true, auto: false, min: d.from, max: d.until }, y: { range: fromZero } },
      axes: [timeAxis({ space: 70 }), axis('y', { size: 56, values: (_u, values) => values.map(compact) })],
      series: [
        {},
        { paths: bars(0.85), fill: colour('--series-bad'), points: { show: false } },
        { paths: bars(0.85), fill: colour('--series-good'), points: { show: false } },
      ],
    }),
    read: (d, i) => `${clock(d.at[i], true)}: ${number(d.delivered[i])} delivered, ${number(d.failed[i])} failed in ${d.every} s`,
  };

  // A mark for each arrival, under the axis, at least a pixel apart.
  function arrivals(data) {
    return (u) => {
      const { ctx } = u;
      const dpr = devicePixelRatio || 1;
      const [thick, length] = [Math.max(1, Math.round(dpr)), Math.round(7 * dpr)];
      const top = u.bbox.top + u.bbox.height + Math.round(2 * dpr);
      const right = u.bbox.left + u.bbox.width;
      ctx.save();
      ctx.fillStyle = colour('--series-in');
      let free = -Infinity;
      for (const s of data.arrivals) {
        if (s < u.scales.x.min || s > u.scales.x.max) continue;
        const x = Math.max(free, Math.round(u.valToPos(s, 'x', true)));
        if (x > right) break;
        ctx.fillRect(x, top, thick, length);
        free = x + 2 * thick;
      }
      ctx.restore();
    };
  }

  const overlays = { cpu: 'CPU', disk: 'Disk', net: 'Network' };

  // A day: deliveries per hour in each minute, failures above them, their sum as a line, arrivals under the axis, and how
  // busy the machine was if that is wanted.
  const day = {
    data: (d) => [d.at, stacked(d.delivered, d.failed).map((n) => n * 60), d.delivered.map((n) => n * 60), d.sum,
      ...Object.keys(overlays).map((name) => d[name] ?? d.at.map(() => null))],
    options: (d) => ({
      zoom: true,
      scales: {
        x: { time: true, auto: false, min: d.from, max: d.until },
        y: { range: fromZero }, sum: { range: fromZero }, share: { range: () => [0, 1] },
      },
      axes: [
        timeAxis({ gap: 14, size: 46 }),
        axis('y', { size: 56, values: (_u, values) => values.map(compact) }),
        axis('sum', { side: 1, size: 52, grid: { show: false }, values: (_u, values) => values.map(compact) }),
      ],
      series: [
        {},
        { paths: bars(1), fill: colour('--series-bad'), points: { show: false } },
        { paths: bars(1), fill: colour('--series-good'), points: { show: false } },
        { scale: 'sum', stroke: colour('--series-sum'), width: 2, points: { show: false } },
        ...Object.keys(overlays).map((name, i) => ({
          scale: 'share', show: !!d.shown?.has(name), stroke: colour('--series-more'), width: 1.5,
          dash: [[], [6, 3], [2, 3]][i], points: { show: false }, spanGaps: true,
        })),
      ],
      hooks: { draw: [arrivals(d)] },
    }),
    read: (d, i) => `${clock(d.at[i])}: ${number(d.delivered[i] * 60)} an hour (${number(d.delivered[i])} delivered, `
      + `${number(d.failed[i])} failed), ${number(d.sum[i])} since the day began`
      + (d.cpu?.[i] == null ? '' : `; CPU ${Math.round(d.cpu[i] * 100)} %`),
  };

  const kinds = { rates, day };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => charts.forEach((chart) => chart.draw()));
  return {
    make: (element) => new Chart(element, kinds[element.dataset.chart], kinds[element.dataset.chart].read),
  };
})();
