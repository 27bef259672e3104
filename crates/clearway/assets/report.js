"use strict";
// Draws the charts of a report from the JSON in the page. All words and tables stand in the page already.
// For checks from outside, <html> carries: data-charts (asked for), data-drawn (drawn), data-errors (messages),
// data-overflow (pixels wider than the window), data-scrolling (tables wider than their frame), data-width and data-scheme (what the page was drawn for).
(() => {
  const root = document.documentElement;
  const fail = message => { root.dataset.errors = (root.dataset.errors || "") + message + "\n"; };
  window.addEventListener("error", event => fail(event.message));

  const { queues, report } = JSON.parse(document.getElementById("material").textContent);
  const places = [...document.querySelectorAll(".chart")];
  const color = name => getComputedStyle(root).getPropertyValue(name).trim();
  const num = value => value === "inf" ? Infinity : value;
  const finite = value => value !== null && value !== undefined && Number.isFinite(num(value)) ? num(value) : null;
  const queueColor = labels => color("--q" + Math.max(0, queues.indexOf(labels.queue)) % 6);
  const FONT = '12px system-ui, "Segoe UI", Roboto, Arial, sans-serif';
  const LABEL_FONT = '600 12.5px system-ui, "Segoe UI", Roboto, Arial, sans-serif';

  // Numbers for people, in three digits that matter.
  const digits = n => {
    if (!Number.isFinite(n)) return "\u221e";
    const size = Math.abs(n);
    const places = size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : size >= 0.1 ? 2 : 3;
    return n.toFixed(places).replace(/\B(?=(\d{3})+$)/g, size >= 1e4 && places === 0 ? "\u202f" : "");
  };
  const short = n => String(+n.toPrecision(3));
  const micros = us => us === null ? "nothing sent" : !Number.isFinite(us) ? "lost"
    : us >= 1e6 ? short(us / 1e6) + " s" : us >= 1e3 ? short(us / 1e3) + " ms" : us >= 1 ? short(us) + " \u00b5s" : short(us * 1e3) + " ns";
  const percent = share => short(share * 100) + " %";

  // Logarithmic axes: whole decades, and nothing between them.
  const decades = (low, high) => {
    const from = Math.floor(Math.log10(low) + 1e-9), to = Math.ceil(Math.log10(high) - 1e-9);
    return [10 ** from, 10 ** Math.max(to, from + 1)];
  };
  const decadeSplits = (u, axis, low, high) => {
    const splits = [];
    for (let e = Math.round(Math.log10(low)); e <= Math.round(Math.log10(high)); e++) splits.push(+(10 ** e).toPrecision(12));
    const keep = Math.max(1, Math.ceil(splits.length * 62 / (axis === 0 ? u.bbox.width / devicePixelRatio || 400 : 1e9)));
    return splits.filter((_, i) => i % keep === 0);
  };
  const spread = values => {
    let low = Infinity, high = -Infinity;
    for (const v of values) if (v !== null && Number.isFinite(v) && v > 0) { low = Math.min(low, v); high = Math.max(high, v); }
    return low > high ? [1, 10] : [low, high];
  };

  const axis = extra => ({
    stroke: color("--soft"), font: FONT, labelFont: FONT, labelSize: 18, labelGap: 2, gap: 6,
    grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, border: { show: false }, ...extra,
  });

  const plot = (place, height, options, data, read) => {
    const out = place.parentElement.querySelector(".readout");
    const width = Math.floor(place.clientWidth);
    const hooks = options.hooks || {};
    const u = new uPlot({
      width, height, padding: [12, 14, 0, 0], legend: { show: false }, ...options,
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 6 }, ...options.cursor },
      hooks: { ...hooks, setCursor: [u => { if (read && u.cursor.idx !== null && u.cursor.idx !== undefined) out.textContent = read(u.cursor.idx); }] },
    }, data, place);
    return { resize: () => u.setSize({ width: Math.floor(place.clientWidth), height }), destroy: () => u.destroy() };
  };

  // Writes names next to lines: `wanted` has x and y in CSS pixels of the plot; names move apart rather than overlap.
  const nameLines = (u, wanted) => {
    const ratio = devicePixelRatio, context = u.ctx, box = u.bbox;
    context.save();
    context.scale(ratio, ratio);
    context.font = LABEL_FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const left = box.left / ratio, right = left + box.width / ratio, top = box.top / ratio, bottom = top + box.height / ratio;
    const placed = [];
    for (const item of wanted.sort((a, b) => b.y - a.y)) {
      const width = context.measureText(item.text).width;
      const x = Math.min(Math.max(item.x + 8, left + 2), right - width - 2);
      let y = Math.min(Math.max(item.y - 10, top + 8), bottom - 9);
      for (const other of placed) {
        const apart = x > other.x + other.width + 6 || other.x > x + width + 6;
        if (!apart && Math.abs(y - other.y) < 16) y = other.y - 16;
      }
      placed.push({ x, y, width });
      context.lineWidth = 4;
      context.lineJoin = "round";
      context.strokeStyle = color("--ground");
      context.strokeText(item.text, x, y);
      context.fillStyle = item.color;
      context.fillText(item.text, x, y);
    }
    context.restore();
  };
  const at = (u, x, y) => ({ x: u.valToPos(x, "x", true) / devicePixelRatio, y: u.valToPos(y, "y", true) / devicePixelRatio });

  const survival = (place, items) => {
    const curves = items.map(i => report.survival[i]).filter(curve => curve.points.length);
    if (!curves.length) return [];
    const all = curves.flatMap(curve => curve.points);
    const [low, high] = decades(...spread(all.map(point => point[0])));
    const [floor] = decades(spread(all.map(point => point[1]))[0], 1);
    const tables = curves.map(curve => {
      const seen = curve.points.filter(point => point[0] > 0 && point[1] > 0);
      const xs = seen.map(point => point[0]), ys = seen.map(point => point[1]);
      // Nothing is faster than the first point: up to there the line is level.
      if (xs.length && xs[0] > low) { xs.unshift(low, xs[0] * (1 - 1e-9)); ys.unshift(1, 1); }
      const last = curve.points[curve.points.length - 1];
      // What never came back keeps the line up to the right edge.
      if (last[1] > 0) { xs.push(high); ys.push(last[1]); }
      return [xs, ys];
    });
    const isOfProgram = curves.every(curve => curve.labels.victim === "program");
    const [things, time] = isOfProgram ? ["runs", "time of a run"] : ["messages", "latency"];
    const congested = curve => curve.labels.phase !== "isolated";
    const name = curve => [curve.labels.queue, curve.labels.phase].filter(Boolean).join(" ") || "all";
    const data = uPlot.join(tables);
    const level = (curve, x) => {
      const after = curve.points.findIndex(point => point[0] > x);
      return after < 0 ? curve.points[curve.points.length - 1][1] : after === 0 ? 1 : curve.points[after - 1][1];
    };
    return [plot(place, 380, {
      padding: [12, 26, 0, 0],
      scales: { x: { time: false, distr: 3, range: () => [low, high] }, y: { distr: 3, range: () => [floor, 1] } },
      axes: [
        axis({ label: time, size: 30, splits: decadeSplits, values: (u, splits) => splits.map(micros) }),
        axis({ label: "share of " + things + " that took longer", size: 58, splits: decadeSplits, values: (u, splits) => splits.map(percent) }),
      ],
      series: [{}, ...curves.map(curve => ({
        stroke: queueColor(curve.labels), width: congested(curve) ? 2.25 : 1.75, dash: congested(curve) ? [] : [5, 4],
        spanGaps: true, points: { show: false },
      }))],
    }, data, index => {
      const x = data[0][index];
      return "Longer than " + micros(x) + ": " + curves.map(curve => name(curve) + " " + percent(level(curve, x))).join(", ");
    })];
  };

  // The same scale for all timelines of one victim, so that queues compare at sight.
  const latencyRange = labels => decades(...spread(report.timelines
    .filter(line => line.labels.victim === labels.victim).flatMap(line => line.victim_p99_us.map(finite))));

  const timeline = (place, items) => {
    const line = report.timelines[items[0]];
    const steps = Math.max(line.victim_p99_us.length, line.goodput_mbps.length, line.cpu_noise.length);
    // Laboratories run for seconds, machines for milliseconds.
    const [unit, factor] = steps * line.step_ms >= 100 ? ["s", 1] : ["ms", 1e3];
    const step = line.step_ms / 1000 * factor, start = (line.start_s || 0) * factor;
    const xs = Array.from({ length: steps }, (_, i) => start + i * step);
    if (!steps) return [];
    const column = values => xs.map((_, i) => finite(values[i]));
    const strong = queueColor(line.labels), soft = color("--soft"), wash = color("--wash"), ink = color("--ink");
    const end = start + steps * step;
    const [low, high] = latencyRange(line.labels);
    const lost = xs.filter((_, i) => num(line.victim_p99_us[i]) === Infinity);
    const stretches = (line.phases || []).map(phase => ({ name: phase.name, from: phase.from_s * factor, to: phase.to_s * factor }))
      .filter(phase => phase.from < end && phase.to > start);
    const shade = u => {
      const context = u.ctx, box = u.bbox;
      context.fillStyle = wash;
      for (const phase of stretches.filter(phase => phase.name !== "isolated")) {
        const from = u.valToPos(Math.max(phase.from, start), "x", true), to = u.valToPos(Math.min(phase.to, end), "x", true);
        context.fillRect(from, box.top, to - from, box.height);
      }
    };
    const phaseNames = u => nameLines(u, stretches.map(phase => (
      { ...at(u, Math.max(phase.from, start), high), y: u.bbox.top / devicePixelRatio + 20, text: phase.name, color: soft })));
    const triangles = u => {
      const context = u.ctx, ratio = devicePixelRatio, top = u.bbox.top + 20 * ratio;
      context.save();
      context.fillStyle = ink;
      for (const x of lost) {
        const at = u.valToPos(x, "x", true);
        context.beginPath();
        context.moveTo(at, top); context.lineTo(at - 5 * ratio, top + 9 * ratio); context.lineTo(at + 5 * ratio, top + 9 * ratio);
        context.fill();
      }
      context.restore();
    };
    const mega = [...column(line.goodput_mbps), finite(line.ideal_mbps)];
    const [rateUnit, rateFactor] = spread(mega)[1] >= 1e5 ? ["Gb/s", 1e-3] : ["Mb/s", 1];
    const rate = mbps => mbps === null ? null : mbps * rateFactor;
    const ideal = rate(finite(line.ideal_mbps));
    const idealLine = u => {
      if (ideal === null) return;
      const context = u.ctx, y = u.valToPos(ideal, "y", true), ratio = devicePixelRatio;
      context.save();
      context.strokeStyle = ink; context.lineWidth = ratio; context.setLineDash([4 * ratio, 4 * ratio]);
      context.beginPath(); context.moveTo(u.bbox.left, y); context.lineTo(u.bbox.left + u.bbox.width, y); context.stroke();
      context.restore();
      nameLines(u, [{ x: u.bbox.left / ratio + 2, y: y / ratio + 21, text: "ideal " + digits(ideal) + " " + rateUnit, color: soft }]);
    };
    const read = i => {
      const p99 = line.victim_p99_us[i] === undefined ? null : num(line.victim_p99_us[i]);
      const parts = [digits(xs[i]) + " " + unit, "p99 " + micros(p99)];
      if (finite(line.goodput_mbps[i]) !== null) parts.push(digits(rate(finite(line.goodput_mbps[i]))) + " " + rateUnit);
      if (finite(line.cpu_noise[i]) !== null) parts.push("CPU wait " + digits(finite(line.cpu_noise[i])) + " %");
      return parts.join(", ");
    };
    const x = { time: false, range: () => [start, end] };
    const sync = { cursor: { sync: { key: "timeline" + items[0], setSeries: false } } };
    const bare = axis({ size: 8, values: (u, splits) => splits.map(() => "") });
    const row = (height, label, values, series, scale, extra, hooks, bottom) => plot(place, height, {
      ...sync, scales: { x, y: scale }, padding: [8, 14, 0, 0],
      axes: [bottom ? axis({ label: "time of the run, " + unit, size: 30 }) : bare, axis({ label, size: 58, ...extra })],
      series: [{}, { points: { show: false }, ...series }], hooks,
    }, [xs, column(values)], read);
    const rates = spread(mega.map(rate))[1];
    // A simulated machine has no noise to show.
    const noisy = line.cpu_noise.length === 0 || line.cpu_noise.some(value => value !== null);
    const noise = Math.max(10, spread(column(line.cpu_noise))[1]);
    return [
      row(210, "victim p99", line.victim_p99_us, { stroke: strong, width: 2 }, { distr: 3, range: () => [low, high] },
        { splits: decadeSplits, values: (u, splits) => splits.map(micros) }, { drawClear: [shade], draw: [triangles, phaseNames] }),
      row(noisy ? 120 : 142, "goodput, " + rateUnit, column(line.goodput_mbps).map(rate), { stroke: strong, width: 1.5, fill: strong + "24" }, { range: () => [0, rates * 1.08] },
        {}, { drawClear: [shade], draw: [idealLine] }, !noisy),
      ...noisy ? [row(112, "CPU wait, %", line.cpu_noise, { stroke: soft, fill: soft, width: 0, paths: uPlot.paths.bars({ size: [0.8, 8], align: 1 }) },
        { range: () => [0, noise * 1.1] }, {}, { drawClear: [shade] }, true)] : [],
    ];
  };

  // Cividis (Nunez, Anderton, Renslow 2018): even steps for every colour vision, and in grey.
  const CIVIDIS = [[0, 32, 77], [49, 68, 107], [102, 105, 112], [149, 143, 120], [203, 186, 105], [255, 234, 70]];
  const tone = share => {
    const place = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1), i = Math.min(CIVIDIS.length - 2, Math.floor(place));
    return CIVIDIS[i].map((c, k) => Math.round(c + (CIVIDIS[i + 1][k] - c) * (place - i)));
  };

  // One scale for all maps, so that queues compare at sight. It reaches at least from 1 to 2: a few percent are no alarm.
  const heatScale = () => {
    const cells = report.heat.flatMap(map => map.rows.flat()).filter(v => v !== null).map(num).sort((a, b) => a - b);
    const quantile = q => cells.length ? cells[Math.min(cells.length - 1, Math.floor(q * cells.length))] : 1;
    const usable = v => Number.isFinite(v) && v > 0;
    const finiteMax = cells.filter(usable).pop() || 1, p5 = quantile(0.05), p95 = quantile(0.95);
    return { low: Math.min(1, usable(p5) ? p5 : 1), high: Math.max(2, usable(p95) ? p95 : finiteMax) };
  };

  const heat = (place, items) => {
    const map = report.heat[items[0]], n = map.ranks.length;
    const { low, high } = heatScale();
    const share = v => Math.log(v / low) / Math.log(high / low);
    const canvas = document.createElement("canvas"), out = place.parentElement.querySelector(".readout");
    place.append(canvas);
    let geometry;
    const draw = () => {
      const ratio = devicePixelRatio, width = Math.min(Math.floor(place.clientWidth), 560);
      const context = canvas.getContext("2d");
      context.font = FONT;
      const named = n <= 40, gutter = named ? Math.min(120, 10 + Math.max(0, ...map.ranks.map(name => context.measureText(name).width))) : 22;
      const top = 40, size = (width - gutter) / Math.max(1, n), height = top + size * n + 58;
      canvas.width = width * ratio; canvas.height = height * ratio;
      canvas.style.width = width + "px"; canvas.style.height = height + "px";
      context.scale(ratio, ratio);
      context.textBaseline = "middle"; context.textAlign = "center"; context.font = FONT;
      context.fillStyle = color("--soft");
      context.fillText("to", gutter + size * n / 2, 8);
      context.textAlign = "left";
      context.fillText("from", 0, 8 + (named ? 18 : 0));
      const every = Math.ceil(n * 26 / (width - gutter));
      for (let i = 0; named && i < n; i++) {
        context.fillStyle = color("--ink");
        context.textAlign = "center";
        if (i % every === 0) context.fillText(map.ranks[i], gutter + size * (i + 0.5), 27, size * every - 2);
        context.textAlign = "right";
        context.fillText(map.ranks[i], gutter - 6, top + size * (i + 0.5), gutter - 6);
      }
      const gap = size > 12 ? 1 : 0;
      context.textAlign = "center";
      map.rows.forEach((row, from) => row.forEach((value, to) => {
        const x = gutter + size * to, y = top + size * from;
        if (value === null) { context.fillStyle = color("--wash"); context.fillRect(x, y, size - gap, size - gap); return; }
        const v = num(value), [r, g, b] = tone(v > 0 ? share(v) : 0);
        context.fillStyle = `rgb(${r} ${g} ${b})`;
        context.fillRect(x, y, Math.max(size - gap, 0.6), Math.max(size - gap, 0.6));
        if (size < 34) return;
        context.fillStyle = 0.299 * r + 0.587 * g + 0.114 * b > 125 ? "#111" : "#fff";
        context.fillText(v >= 10 && Number.isFinite(v) ? v.toFixed(0) : digits(v), x + (size - gap) / 2, y + (size - gap) / 2, size - 4);
      }));
      const y = top + size * n + 16, bar = Math.min(240, width - gutter);
      for (let i = 0; i < bar; i++) { context.fillStyle = `rgb(${tone(i / bar).join(" ")})`; context.fillRect(gutter + i, y, 1.5, 10); }
      context.fillStyle = color("--soft");
      context.textAlign = "left"; context.fillText("\u2264 " + digits(low) + "\u00d7", gutter, y + 22);
      context.textAlign = "right"; context.fillText("\u2265 " + digits(high) + "\u00d7", gutter + bar, y + 22);
      geometry = { gutter, top, size };
    };
    const move = event => {
      const box = canvas.getBoundingClientRect();
      const to = Math.floor((event.clientX - box.left - geometry.gutter) / geometry.size);
      const from = Math.floor((event.clientY - box.top - geometry.top) / geometry.size);
      const value = (map.rows[from] || [])[to];
      out.textContent = value === undefined || value === null ? "" : `${map.ranks[from]} to ${map.ranks[to]}: ${digits(num(value))} times slower`;
    };
    draw();
    canvas.addEventListener("pointermove", move);
    return [{ resize: draw, destroy: () => canvas.remove() }];
  };

  const draws = place => {
    const name = labels => [labels.victim, labels.congestor, labels.place, labels.queue, labels.quantile].filter(Boolean).join(" ");
    const rows = new Map();
    report.draws.forEach((draw, i) => draw.cif.forEach(factor => {
      const key = name(factor.labels);
      if (!rows.has(key)) rows.set(key, { labels: factor.labels, factors: report.draws.map(() => null) });
      rows.get(key).factors[i] = factor;
    }));
    if (!rows.size) return [];
    const series = [...rows.values()];
    const value = factor => factor === null ? null : finite(factor.value);
    const everything = series.flatMap(row => row.factors.filter(Boolean).flatMap(f => [finite(f.value), finite(f.low), finite(f.high)]));
    const [low, high] = decades(...spread([1, ...everything]));
    const xs = report.draws.map((_, i) => i + 1);
    const shift = k => series.length < 2 ? 0 : (k / (series.length - 1) - 0.5) * 0.24;
    const draw = u => {
      const context = u.ctx, ratio = devicePixelRatio;
      const names = [];
      series.forEach((row, k) => {
        const stroke = queueColor(row.labels), sorted = row.factors.map(value).filter(v => v !== null).sort((a, b) => a - b);
        context.save();
        context.strokeStyle = context.fillStyle = stroke;
        row.factors.forEach((factor, i) => {
          if (factor === null) return;
          const x = u.valToPos(xs[i] + shift(k), "x", true);
          const y = v => u.valToPos(Math.min(Math.max(num(v), low), high), "y", true);
          context.lineWidth = 2 * ratio; context.globalAlpha = 0.55;
          if (factor.low !== null && factor.high !== null && factor.low !== undefined) {
            context.beginPath(); context.moveTo(x, y(factor.low)); context.lineTo(x, y(factor.high)); context.stroke();
          }
          context.globalAlpha = 1;
          context.beginPath(); context.arc(x, y(factor.value), 4 * ratio, 0, 7); context.fill();
        });
        if (sorted.length) {
          const median = (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2, y = u.valToPos(median, "y", true);
          context.lineWidth = 1.25 * ratio; context.setLineDash([6 * ratio, 5 * ratio]);
          context.beginPath(); context.moveTo(u.bbox.left, y); context.lineTo(u.bbox.left + u.bbox.width, y); context.stroke();
          const text = name(row.labels) + ", median " + digits(median) + "\u00d7";
          names.push({ x: u.bbox.left / ratio - 4, y: y / ratio - 12, text, color: stroke });
        }
        context.restore();
      });
      nameLines(u, names);
    };
    return [plot(place, 300, {
      scales: { x: { time: false, range: () => [0.4, xs.length + 0.6] }, y: { distr: 3, range: () => [low, high] } },
      axes: [
        axis({ label: "draw", splits: () => xs.filter((_, i) => i % Math.ceil(xs.length / 20) === 0), grid: { show: false }, size: 30 }),
        axis({ label: "times slower", size: 58, splits: decadeSplits, values: (u, splits) => splits.map(v => short(v) + "\u00d7") }),
      ],
      series: [{}, ...series.map(() => ({ paths: () => null, points: { show: false } }))],
      hooks: { draw: [draw] },
    }, [xs, ...series.map(row => row.factors.map(value))], i => "Draw " + xs[i] + " (seed " + report.draws[i].seed + "): "
      + series.map(row => name(row.labels) + " " + (row.factors[i] ? digits(num(row.factors[i].value)) + "\u00d7" : "not measured")).join(", "))];
  };

  const kinds = { survival, timeline, heat, draws };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let drawn = [];
  // A picture that is wider than the page says so, for those who see no scroll bar.
  const markScrolling = () => document.querySelectorAll(".scroll").forEach(frame => {
    const isWide = frame.scrollWidth > frame.clientWidth;
    frame.classList.toggle("scrolls", isWide);
    if (isWide && !frame.nextElementSibling?.classList.contains("more")) {
      const more = document.createElement("p");
      more.className = "more";
      more.textContent = "Wider than the page: scroll sideways \u2192";
      frame.after(more);
    }
  });
  const drawAll = () => {
    drawn.forEach(chart => chart.destroy());
    drawn = [];
    let done = 0;
    for (const place of places) {
      try {
        drawn.push(...kinds[place.dataset.kind](place, place.dataset.items.split(",").map(Number)));
        done += place.querySelector("canvas") ? 1 : 0;
      } catch (error) {
        fail(place.dataset.kind + ": " + error.message);
        place.textContent = "This chart could not be drawn.";
      }
    }
    root.dataset.charts = places.length;
    root.dataset.drawn = done;
    root.dataset.width = innerWidth;
    root.dataset.scheme = dark.matches ? "dark" : "light";
    root.dataset.overflow = root.scrollWidth > root.clientWidth ? root.scrollWidth - root.clientWidth : 0;
    const folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach(fold => { fold.open = true; });
    root.dataset.scrolling = [...document.querySelectorAll(".scroll")]
      .filter(frame => frame.querySelector("table") && frame.scrollWidth > frame.clientWidth).length;
    markScrolling();
    folded.forEach(fold => { fold.open = false; });
  };
  drawAll();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawn.forEach(chart => chart.resize()); } });
  dark.addEventListener("change", drawAll);
})();
