// A figure: charts with one shared round axis, a sentence that says what they show, the numbers as a table.

const figures = new Set();
// Milliseconds between two drawings of a figure while a run is followed, from FASTEST to SLOWEST: IDLE times as long as
// the last drawing took, because the run may be on this machine.
const [FASTEST, SLOWEST, IDLE] = [1000, 4000, 40];
const MOST_ROWS = 1000;
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };
const inView = new IntersectionObserver(
  (entries) => entries.forEach(({ target, isIntersecting }) => target.figure.seen(isIntersecting)),
  { rootMargin: "200px" },
);

// compute() gives {plots: [{title, traces, layout, height}], summary, note, table: {columns, rows()}}, or null for "no data".
class Figure {
  constructor({ title, compute, controls, before, after, kind = "" }) {
    Object.assign(this, { compute, drawnAt: -FASTEST, pause: FASTEST, zoom: { x: null, y: null }, divs: [] });
    this.summary = h("p", { class: "summary" });
    this.note = h("p", { class: "note" });
    this.grid = h("div", { class: "plots " + kind });
    this.unzoom = h(
      "button",
      { type: "button", class: "small unzoom", hidden: true, onclick: () => this.setZoom(null, null) },
      "Reset zoom"
    );
    this.holder = h("div", { class: "table", role: "region", tabindex: 0, "aria-label": "Table: " + title });
    this.details = h("details", { ontoggle: () => this.showTable() }, h("summary", null, "Table"), this.holder);
    const copying = h("button", { type: "button", class: "small", onclick: () => this.copyTable(copying) }, "Copy as CSV");
    this.element = h("figure", { role: "group", "aria-label": title },
      h("figcaption", null, h("h3", null, title), this.summary), controls, before, this.grid, after, this.note,
      h("div", { class: "tools" }, this.details, this.unzoom, copying));
    this.title = title;
    this.element.figure = this;
    figures.add(this);
    inView.observe(this.element);
  }

  // The data or the colours changed: draw again soon, if the figure is in view.
  refresh() {
    this.stale = true;
    if (!this.picture) this.describe();
    if (this.visible && window.Plotly && !this.timer)
      this.timer = setTimeout(() => this.draw(), Math.max(0, this.drawnAt + this.pause - performance.now()));
  }

  seen(visible) {
    this.visible = visible;
    if (visible && this.stale) this.refresh();
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = null;
    if (!window.Plotly || !this.describe()) return;
    this.stale = false;
    this.drawnAt = performance.now();
    this.picture.plots.forEach((plot, i) => this.drawPlot(plot, this.divs[i]));
    if (this.details.open) this.showTable();
    this.drawn?.();
    this.pause = Math.min(SLOWEST, Math.max(FASTEST, IDLE * (performance.now() - this.drawnAt)));
  }

  // The words and the size of the picture, which are there before it is drawn. False: there is no picture.
  describe() {
    if (!figures.has(this) || this.element.closest("[hidden]")) return false;
    const picture = (this.picture = this.compute());
    this.element.classList.toggle("empty", !picture);
    if (!picture) return false;
    fill(this.summary, picture.summary);
    fill(this.note, picture.note);
    this.note.hidden = !picture.note;
    while (this.divs.length > picture.plots.length) this.dropPlot();
    picture.plots.forEach((plot, i) => {
      const div = (this.divs[i] ||= this.addPlot());
      fill(div.previousSibling, plot.title);
      div.previousSibling.hidden = !plot.title;
      div.style.height = plot.height + "px";
    });
    return true;
  }

  drawPlot(plot, div) {
    const fresh = !div.layout;
    const layout = baseLayout(plot.layout || {}, plot.height);
    if (this.zoom.x && !layout.xaxis.fixedrange) Object.assign(layout.xaxis, { range: this.zoom.x.slice(), autorange: false });
    if (this.zoom.y && !layout.yaxis.fixedrange) Object.assign(layout.yaxis, { range: this.zoom.y.slice(), autorange: false });
    if (plot.tweak) plot.tweak(layout, div);
    Plotly.react(div, plot.traces, layout, CONFIG);
    if (!fresh) return;
    div.on("plotly_relayout", (change) => this.zoomed(change));
    div.on("plotly_doubleclick", () => this.setZoom(null, null));
    this.attached?.(div);
  }

  addPlot() {
    const div = h("div", { class: "plot" });
    this.grid.append(h("div", { "aria-hidden": "true" }, h("p", { class: "plot-title" }), div));
    return div;
  }

  dropPlot() {
    const div = this.divs.pop();
    if (div.layout) Plotly.purge(div);
    div.parentNode.remove();
  }

  // The reader zoomed one chart: the others follow along the rounds.
  zoomed(change) {
    const range = (axis) => ("xy".includes(axis) && axis + "axis.range[0]" in change ? [
      change[axis + "axis.range[0]"], change[axis + "axis.range[1]"]
    ] : this.zoom[axis]);
    const [x, y] = [range("x"), range("y")];
    if (x !== this.zoom.x || y !== this.zoom.y) this.setZoom(x, y);
  }

  setZoom(x, y) {
    this.zoom = { x, y };
    this.unzoom.hidden = !x && !y;
    this.draw();
  }

  showTable() {
    if (!this.details.open) return fill(this.holder);
    const table = (this.picture || this.compute())?.table;
    if (!table) return;
    const rows = table.rows();
    const cut = rows.length > MOST_ROWS && h(
      "p", { class: "note" },
      `The first ${number(MOST_ROWS)} of ${number(rows.length)} rows. "Copy as CSV" copies all of them.`
    );
    fill(this.holder, cut, dataTable(this.title, table.columns, rows.slice(0, MOST_ROWS)));
  }

  copyTable(button) {
    const table = (this.picture || this.compute())?.table;
    if (table) copy(csv(table.columns, table.rows()), button);
  }

  dispose() {
    figures.delete(this);
    inView.unobserve(this.element);
    clearTimeout(this.timer);
    while (this.divs.length) this.dropPlot();
  }
}

// A table whose first column names the row.
function dataTable(caption, columns, rows, cell = (value) => number(value)) {
  return h("table", null,
    h("caption", null, caption),
    h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((value, i) =>
      h(i ? "td" : "th", { scope: i ? null : "row", class: typeof value === "number" ? "number" : null },
        value instanceof Node ? value : typeof value === "string" ? nameOf(value, 60) : cell(value, i)))))));
}

function baseLayout(layout, height) {
  const axis = {
    gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), automargin: false,
    tickfont: { size: 12 }, title: { standoff: 8, font: { size: 12.5 } }, hoverformat: ".4~g",
    fixedrange: true
  };
  const merged = (name, extra) => ({ ...axis, ...extra, ...layout[name], title: { ...axis.title, ...layout[name]?.title } });
  return {
    height,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", color: colour("muted"), size: 13 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hovermode: "x unified",
    hoverlabel: {
      bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: colour("ink"), size: 13 },
      namelength: 32
    },
    legend: {
      orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false,
      font: { color: colour("ink") }
    },
    ...layout,
    margin: { l: 58, r: 14, t: 10, b: 44, ...layout.margin },
    xaxis: merged(
      "xaxis",
      {
        unifiedhovertitle: { text: layout.xaxis?.title?.text === "confidence" ? "%{x}" : "round %{x}" },
        fixedrange: false, hoverformat: ".0f", showgrid: false, zeroline: false
      }
    ),
    yaxis: merged(
      "yaxis",
      layout.xaxis?.dtick === 1 && layout.xaxis.range[1] - layout.xaxis.range[0] <= 1 ? { rangemode: "tozero" } : {}
    ), // one single round
  };
}

// One line over rounds. What is missing stays a gap, bridged by a thin dotted line; lone points get markers.
function lineOver(name, bins, values, i, extra = {}) {
  const x = bins.map(middle);
  const known = values.map((value) => !missing(value));
  const lone = known.map((here, k) => here && !known[k - 1] && !known[k + 1]);
  const few = bins.length <= 40;
  const gap = known.slice(known.indexOf(true), known.lastIndexOf(true)).includes(false);
  const line = { color: lineColour(i), dash: DASHES[i % 6], width: 2, ...extra.line };
  const trace = {
    type: "scatter", name: plain(name, 32), x, y: values, line, connectgaps: false,
    mode: few || lone.includes(true) ? "lines+markers" : "lines",
    marker: {
      color: line.color, symbol: SYMBOLS[i % 6], size: bins.length === 1 ? 9 : few ? 6 : 5, opacity: few ? 1 : lone.map(Number)
    },
  };
  const bridge = {
    ...trace, mode: "lines", connectgaps: true, showlegend: false, hoverinfo: "skip",
    line: { color: line.color, width: 1, dash: "dot" }
  };
  return gap ? [bridge, trace] : [trace];
}

// A legend of n lines needs more height on a phone, where its entries are one below the other.
const narrow = () => matchMedia("(max-width: 600px)").matches && !printing;
const heightFor = (height, n) => height + (narrow() && n > 1 ? 20 * n : 0);

// The axis of rounds; one single round gets room on both sides.
function roundAxis(bins) {
  const [first, last] = [bins[0][0], bins[bins.length - 1][1]];
  const room = Math.max(0.5, (last - first) / 50);
  return {
    title: { text: "round" }, range: [first - room, last + room], autorange: false,
    ...(last - first < 12 ? { tickformat: "d", dtick: 1 } : { tickformat: ",d" })
  };
}

// The last known value of a series.
const latest = (values) => (values || []).findLast((value) => !missing(value)) ?? null;
