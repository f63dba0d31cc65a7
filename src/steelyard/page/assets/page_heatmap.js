// The heat map client × round: colour is the weight, hatching a rejected reply, dots an absent client.

const SORTS = { weight: "weight", name: "name", group: "behaviour" };

function heatmapSection(view) {
  const ui = view.ui;
  ui.rows ||= "weight";
  const place = h("div", { class: "legend" });
  const tip = h("div", { class: "tip", hidden: true });
  const radios = h("fieldset", { class: "controls" }, h("legend", null, "Sort rows by"),
    Object.entries(SORTS).map(([key, label]) => h(
      "label", null,
      h(
        "input",
        {
          type: "radio", name: "map-sort", value: key, checked: key === ui.rows,
          onchange: () => ((ui.rows = key), figure.setZoom(null, null))
        }
      ),
      " " + label
    )));
  const help = h(
    "p", { class: "note screen", id: "map-help" },
    "Click a row to follow that client below. With the keyboard: arrow keys move, Enter follows, + and − zoom, 0 shows everything."
  );
  const figure = new Figure({
    title: "Weight of every client in every round", kind: "stacked", controls: radios, before: place, after: help,
    compute: () => (figure.map = heatmapPicture(view.run, ui.rows, place)),
  });
  const cursor = new MapCursor(view, figure, tip);
  figure.element.append(tip);
  const counts = new Figure({ title: "Clients whose update was used", compute: () => countsPicture(view.run) });
  const made = figureSection(
    view, "weights", "Weights over the rounds", "Weights",
    (run) => run.cells.bins.length > 0, [figure, counts]
  );
  return { ...made, cursor };
}

// Client numbers from the top row to the bottom row.
function rowOrder(run, sort) {
  const all = run.clients.map((_, at) => at);
  if (sort === "weight") return all.sort(
    (a, b) => (run.clients[b].share ?? -Infinity) - (run.clients[a].share ?? -Infinity) || a - b
  );
  return sort === "group" && run.group_order?.length === all.length ? run.group_order : all;
}

// 0 for no weight, 0.5 for an equal share, 1 for the largest weight; below 0 for a negative weight.
function strength(ratio, most) {
  if (ratio < 0) return Math.max(-0.5, ratio / 2);
  return ratio <= 1 ? ratio / 2 : 0.5 + (0.5 * Math.log(ratio)) / Math.log(most);
}

const edgesOf = (bins) => [
  bins[0][0] - 0.5,
  ...bins.map((bin, k) => (k + 1 < bins.length ? (bin[1] + bins[k + 1][0]) / 2 : bin[1] + 0.5))
];

function heatmapPicture(run, sort, legend) {
  const { bins, weight, note } = run.cells;
  const order = rowOrder(run, sort);
  const equal = run.clients.map((client) => client.equal || 1 / run.clients.length);
  let [least, most] = [0, 2];
  for (const column of weight)
    for (let c = 0; c < order.length; c++) {
      const ratio = column[c] / equal[c];
      if (ratio > most) most = ratio;
      if (ratio < least) least = ratio;
    }
  const z = order.map((c) => weight.map((column) => (missing(column[c]) ? null : strength(column[c] / equal[c], most))));
  const [stops, low] = [ramp(least < 0), least < 0 ? -0.5 : 0];
  const tall = Math.min(640, Math.max(120, order.length * 26));
  const edges = edgesOf(bins);
  const ends = [edges[0], edges[edges.length - 1]];
  mapLegend(legend, stops, low, most, equal);
  const trace = {
    type: "heatmap", z, x: edges, y0: 0, dy: 1, zmin: low, zmax: 1,
    colorscale: stops.map(([at, tone]) => [(at - low) / (1 - low), tone]), showscale: false, hoverinfo: "none",
    xgap: 0, zsmooth: false
  };
  const side = narrow() ? 12 : 22;
  const names = order.map((c) => plain(run.clients[c].id, side));
  const layout = {
    margin: { l: 14 + 7.2 * Math.min(side, Math.max(3, ...names.map((name) => Array.from(name).length))), t: 6, b: 44 },
    hovermode: "closest",
    xaxis: { ...roundAxis(bins), range: ends },
    yaxis: { range: [order.length - 0.5, -0.5], autorange: false, fixedrange: false, showgrid: false, zeroline: false },
  };
  const tweak = (layout, div) => {
    thinLabels(layout.yaxis, names, tall);
    const groups = sort === "group" ? order.map((c) => run.clients[c].group) : [];
    layout.images = [overlay(run.cells, order, edges, layout, div.clientWidth, tall, groups)];
  };
  const rejected = run.clients.filter((client) => client.rejected > 0).length;
  return {
    order, edges, note,
    plots: [{ traces: [trace], layout, height: tall + 50, tweak }],
    summary: `${plural(order.length, "client")} × ${plural(run.done, "round")}. ` + (
      rejected ? `Replies of ${plural(rejected, "client")} were rejected at least once.` : "No reply was rejected."
    ) + (sort === "group" ? " " + groupText(run) : ""),
    table: {
      columns: ["client", "rounds", "weight", "× equal share", "rejected rounds", "reason"],
      rows: () => mapRows(run, order, equal)
    },
  };
}

// "Lines separate groups that behave alike: 7 like most, 3 group 2."
function groupText(run) {
  const sizes = run.groups.map((name, group) => [run.clients.filter((client) => client.group === group).length, name]);
  return `Lines separate groups that behave alike: ${sizes.filter(([size]) => size).map(([size, name]) => `${size} ${name}`).join(", ")}.`;
}

function mapRows(run, order, equal) {
  const { bins, weight, rejected, reason } = run.cells;
  return order.flatMap((c) => bins.map((bin, k) => [run.clients[c].id, bin[0] === bin[1] ? bin[0] : bin[0] + "–" + bin[1], weight[k][c] ?? null,
    missing(weight[k][c]) ? null : weight[k][c] / equal[c], rejected[k][c] || 0, run.reasons[reason[k][c]] ?? ""]));
}

// Row labels: as many as fit, for the rows in view.
function thinLabels(axis, names, height) {
  const [bottom, top] = axis.range;
  const step = Math.max(1, Math.ceil((16 * (bottom - top)) / height));
  const rows = names.map((_, row) => row).filter((row) => row % step === 0 && row > top - 1 && row < bottom + 1);
  Object.assign(axis, { tickmode: "array", tickvals: rows, ticktext: rows.map((row) => names[row]), tickfont: { size: 12 } });
}

function ramp(negative) {
  const tones = ["--map-0", "--map-25", "--map-50", "--map-75", "--map-100"].map((name) => colour(name.slice(2)));
  return [...(negative ? [[-0.5, colour("warm")]] : []), ...tones.map((tone, i) => [i / 4, tone])];
}

// What the colours mean, with numbers: no weight, equal share, the largest.
function mapLegend(place, stops, low, most, equal) {
  const at = (value) => (100 * (value - low)) / (1 - low);
  const same = Math.max(...equal) - Math.min(...equal) < 1e-3 * Math.max(...equal);
  const name = (ratio) => (same ? percent(ratio * equal[0]) : times(ratio));
  const ticks = [[0, "0"], [0.5, (same ? name(1) + " " : "") + "equal share"], [1, name(most)]];
  if (low < 0) ticks.unshift([low, "below 0"]);
  const gradient = stops.map(([value, tone]) => `${tone} ${at(value)}%`).join(",");
  fill(place,
    h("div", { class: "scale" }, h("span", { class: "label" }, "weight"),
      h("div", null, h("div", { class: "gradient", style: `background:linear-gradient(90deg,${gradient})` }),
        ticks.map(([value, text], i) => h(
          "span",
          { class: "mark" + (i === 0 ? " first" : i === ticks.length - 1 ? " last" : ""), style: `left:${at(value)}%` },
          text
        )))),
    h("span", { class: "key" }, h("span", { class: "swatch hatched", "aria-hidden": "true" }), " rejected"),
    h("span", { class: "key" }, h("span", { class: "swatch dotted", "aria-hidden": "true" }), " did not take part"));
}

function countsPicture(run) {
  const { bins, metrics, note } = run.rounds;
  const parts = [
    ["used", "used"], ["rejected", "rejected"], ["effective_clients", "effective number (1 ÷ Σ weight²)"]
  ].filter(([key]) => latest(metrics.get(key)) !== null);
  if (!parts.length) return null;
  const traces = parts.flatMap(([key, label], i) => lineOver(label, bins, metrics.get(key), i));
  return {
    note, plots: [
      {
        traces, height: heightFor(240, parts.length),
        layout: { xaxis: roundAxis(bins), yaxis: { title: { text: "clients" }, rangemode: "tozero" } }
      }
    ],
    summary: "In the last round: " + parts.map(([key, label]) => `${label} ${number(latest(metrics.get(key)))}`).join(", ") + ".",
    table: seriesTable(bins, parts.map(([key, label]) => [label, metrics.get(key)])),
  };
}
