// Charts of the console, drawn by uPlot. Each has its numbers in a table beside it, so that nothing is said by a chart
// alone; zoom has buttons beside dragging, the cursor has keys beside the mouse.
'use strict';
window.stentorCharts = (() => {
  const charts = new Set();
  // What a clock at the server shows, as if it stood at Greenwich: offsets are seconds east, each from its time on.
  const local = (s, d) => new Date((s + (d.offsets.findLast(([from]) => from <= s) ?? d.offsets[0])[1]) * 1e3);
  const pad = (n) => String(n).padStart(2, '0');
  const clock = (s, d, withSeconds) => {
    const t = local(s, d);
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
  const timeAxis = (d, more) => axis('x', {
    values: (u, splits, _axis, _space, step) => splits.map((s) => clock(s, d, step < 60)), grid: { show: false }, ...more,
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
        width, height, tzDate: (s) => uPlot.tzDate(local(s, this.data), 'Etc/UTC'), legend: { show: false }, padding: [12, 8, 0, 0],
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

    // Where the first step of zooming in leads: to the stretch that has data, or to the middle of it.
    busy(min, max) {
      const x = this.plot.data[0];
      const has = (i) => this.make.has(this.data, i);
      const first = x.findIndex((_, i) => has(i));
      if (first < 0) return [(3 * min + max) / 4, (min + 3 * max) / 4];
      const last = x.findLastIndex((_, i) => has(i));
      const [from, until] = [x[first], x[last] + 60];
      const margin = Math.max(300, (until - from) / 20);
      if (until - from + 2 * margin < (max - min) * 0.75) return [from - margin, until + margin];
      const middle = (from + until) / 2;
      return [middle - (max - min) / 4, middle + (max - min) / 4];
    }

    zoom(verb) {
      if (!this.plot) return;
      const { min, max } = this.plot.scales.x;
      const width = max - min;
      const [first, last] = this.bounds();
      if (verb === 'in') this.zoomTo(...(this.range ? [min + width / 4, max - width / 4] : this.busy(min, max)));
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
      axes: [timeAxis(d, { space: 70 }), axis('y', { size: 56, values: (_u, values) => values.map(compact) })],
      series: [
        {},
        { paths: bars(0.85), fill: colour('--series-bad'), points: { show: false } },
        { paths: bars(0.85), fill: colour('--series-good'), points: { show: false } },
      ],
    }),
    read: (d, i) => `${clock(d.at[i], d, true)}: ${number(d.delivered[i])} delivered, ${number(d.failed[i])} failed in ${d.every} s`,
  };

  // Under the axis a mark for each minute in which messages came in, the thicker the more they were; at least a pixel
  // apart from its neighbours where the chart is wide enough, and none behind the present.
  function arrivals(data) {
    const most = Math.max(1, ...data.arrivals);
    return (u) => {
      const { ctx } = u;
      const dpr = devicePixelRatio || 1;
      const top = u.bbox.top + u.bbox.height + Math.round(2 * dpr);
      const [least, range] = [2 * dpr, 8 * dpr];
      ctx.save();
      ctx.fillStyle = colour('--series-in');
      data.arrivals.forEach((count, i) => {
        const [from, until] = [data.at[i], data.at[i] + 60];
        if (!count || until <= u.scales.x.min || from >= u.scales.x.max) return;
        const left = Math.max(u.bbox.left, u.valToPos(from, 'x', true));
        const right = Math.min(u.bbox.left + u.bbox.width, u.valToPos(until, 'x', true));
        const height = least + range * (Math.log1p(count) / Math.log1p(most));
        ctx.fillRect(Math.round(left), top, Math.max(1, Math.floor(right - left - dpr)), Math.round(height));
      });
      ctx.restore();
    };
  }

  const overlays = { cpu: 'CPU', disk: 'Disk', net: 'Network' };

  // A day: deliveries per hour in each minute, failures above them, their sum as a line, arrivals under the axis, and how
  // busy the machine was if that is wanted.
  const day = {
    has: (d, i) => d.delivered[i] || d.failed[i] || d.arrivals[i],
    data: (d) => [d.at, stacked(d.delivered, d.failed).map((n) => n * 60), d.delivered.map((n) => n * 60), d.sum,
      ...Object.keys(overlays).map((name) => d[name] ?? d.at.map(() => null))],
    options: (d) => ({
      zoom: true,
      scales: {
        x: { time: true, auto: false, min: d.from, max: d.until },
        y: { range: fromZero }, sum: { range: fromZero }, share: { range: () => [0, 1] },
      },
      axes: [
        timeAxis(d, { gap: 14, size: 46 }),
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
    read: (d, i) => `${clock(d.at[i], d)}: ${number(d.delivered[i] * 60)} per hour (${number(d.delivered[i])} delivered, `
      + `${number(d.failed[i])} failed), ${number(d.arrivals[i])} messages accepted, ${number(d.sum[i])} delivered since midnight`
      + (d.cpu?.[i] == null ? '' : `; CPU ${Math.round(d.cpu[i] * 100)} %`),
  };

  const kinds = { rates, day };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => charts.forEach((chart) => chart.draw()));
  return {
    make: (element) => new Chart(element, kinds[element.dataset.chart], kinds[element.dataset.chart].read),
  };
})();
