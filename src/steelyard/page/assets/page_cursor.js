// Reading the heat map: with the mouse (a tooltip) or with the keyboard (a cursor and the same words, spoken).

class MapCursor {
  constructor(view, figure, tip) {
    Object.assign(this, { view, figure, tip, row: 0, column: 0, active: false });
    const grid = figure.grid;
    for (const [name, value] of Object.entries(
      {
        tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-label": "Heat map of weights",
        "aria-describedby": "map-help"
      }
    )) grid.setAttribute(name, value);
    grid.addEventListener("keydown", (event) => this.key(event));
    grid.addEventListener("focus", () => grid.matches(":focus-visible") && this.show());
    grid.addEventListener("blur", () => this.hide());
    grid.addEventListener("mouseleave", () => (tip.hidden = true));
    figure.attached = (div) => this.attach(div);
    figure.drawn = () => this.active && this.show();
  }

  attach(div) {
    this.div = div;
    div.on(
      "plotly_hover",
      ({ points: [{ pointNumber: [row, column] }], event }) => this.explain(row, column, event.clientX, event.clientY)
    );
    div.on("plotly_unhover", () => (this.tip.hidden = true));
    div.on("plotly_click", ({ points: [{ pointNumber: [row] }] }) => this.follow(row));
  }

  follow(row) {
    const client = this.figure.map.order[row];
    this.view.follow(client);
    announce(`${shorten(this.view.run.clients[client].id, 60)} is now among the chosen clients.`);
  }

  key(event) {
    const map = this.figure.map;
    if (!map || event.altKey || event.ctrlKey || event.metaKey) return;
    const [rows, columns] = [map.order.length, map.edges.length - 1];
    const step = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-20, 0],
      PageDown: [20, 0], Home: [0, -columns], End: [0, columns]
    }[event.key];
    const act = {
      Enter: () => this.follow(this.row),
      " ": () => this.follow(this.row),
      "+": () => this.scale(0.5),
      "=": () => this.scale(0.5),
      "-": () => this.scale(2),
      0: () => this.figure.setZoom(null, null),
      Escape: () => this.hide()
    }[event.key];
    if (!step && !act) return;
    event.preventDefault();
    if (act) return act();
    if (this.active) {
      this.row = Math.min(rows - 1, Math.max(0, this.row + step[0]));
      this.column = Math.min(columns - 1, Math.max(0, this.column + step[1]));
    }
    this.reveal();
    this.show();
    announce(this.tip.textContent);
  }

  ranges() {
    const { xaxis, yaxis } = this.div.layout;
    return [xaxis.range, yaxis.range];
  }

  // Zooms around the cursor.
  scale(factor) {
    const { edges, order } = this.figure.map;
    const around = (centre, [a, b], low, high) => {
      const half = Math.min((Math.abs(b - a) * factor) / 2, (high - low) / 2);
      const middle = Math.min(high - half, Math.max(low + half, centre));
      return [middle - half, middle + half];
    };
    const [x, y] = this.ranges();
    const across = around((edges[this.column] + edges[this.column + 1]) / 2, x, edges[0], edges[edges.length - 1]);
    const down = around(this.row, y, -0.5, order.length - 0.5);
    const all = down[1] - down[0] >= order.length && across[1] - across[0] >= edges[edges.length - 1] - edges[0];
    this.figure.setZoom(all ? null : across, all ? null : [down[1], down[0]]);
    this.show();
  }

  // Moves the part in view when the cursor leaves it.
  reveal() {
    const { edges } = this.figure.map;
    const [x, y] = this.ranges();
    const shift = (low, high, from, to) => (low < from ? low - from : high > to ? high - to : 0);
    const dx = shift(edges[this.column], edges[this.column + 1], x[0], x[1]);
    const dy = shift(this.row - 0.5, this.row + 0.5, y[1], y[0]);
    if (dx || dy) this.figure.setZoom([x[0] + dx, x[1] + dx], [y[0] + dy, y[1] + dy]);
  }

  show() {
    const map = this.figure.map;
    if (!map || !this.div) return;
    this.active = true;
    this.row = Math.min(this.row, map.order.length - 1);
    this.column = Math.min(this.column, map.edges.length - 2);
    const [x0, x1, y0, y1] = [map.edges[this.column], map.edges[this.column + 1], this.row - 0.5, this.row + 0.5];
    const outline = (width, tone) => ({
      type: "rect", xref: "x", yref: "y", x0, x1, y0, y1, line: { width, color: colour(tone) }
    });
    Plotly.relayout(this.div, { shapes: [outline(5, "bg"), outline(2.5, "focus")] });
    const box = this.div.querySelector(".nsewdrag").getBoundingClientRect();
    const [x, y] = this.ranges();
    const across = box.left + (box.width * (x1 - x[0])) / (x[1] - x[0]);
    const down = box.top + (box.height * (y1 - y[1])) / (y[0] - y[1]);
    this.explain(this.row, this.column, across, down);
  }

  hide() {
    this.tip.hidden = true;
    if (this.active) Plotly.relayout(this.div, { shapes: [] });
    this.active = false;
  }

  explain(row, column, x, y) {
    const lines = cellText(this.view.run, this.figure.map.order[row], column);
    fill(this.tip, h("strong", null, nameOf(lines[0], 60)), lines.slice(1).map((line) => ["\u00a0", h("span", null, line)]));
    this.tip.hidden = false;
    const around = this.figure.element.getBoundingClientRect();
    const left = Math.max(0, Math.min(x - around.left + 12, around.width - this.tip.offsetWidth));
    Object.assign(this.tip.style, { left: left + "px", top: y - around.top + 14 + "px" });
  }
}

// What a cell says: client, rounds, weight as % and × equal share, rejections and their reason.
function cellText(run, client, column) {
  const { bins, weight, rejected, reason } = run.cells;
  const { id, equal } = run.clients[client];
  const [bin, value, refused] = [bins[column], weight[column][client], rejected[column][client] || 0];
  const share = missing(value) ? (refused ? null : "did not take part.") : `weight ${percent(value)}` + (
    equal ? `, ${times(value / equal)} the equal share.` : "."
  );
  const why = run.reasons[reason[column][client]];
  const rounds = bin[1] - bin[0] + 1;
  const refusal = refused ? (
    rounds === 1 ? "Rejected" : `Rejected in ${refused} of ${rounds} rounds`
  ) + (why ? ": " + shorten(why, 200) : ".") : null;
  return [id, roundsOf(bin) + ":", share, refusal].filter(Boolean);
}
