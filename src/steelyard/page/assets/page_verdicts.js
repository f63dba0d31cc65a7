// Verdicts: one row per client with its share, the equal share as a tick, and the sentence that says why.

const FIRST_ROWS = 30;
const ORDERS = {
  lowest: ["lowest share first", (a, b) => (a.share ?? Infinity) - (b.share ?? Infinity)],
  highest: ["highest share first", (a, b) => (b.share ?? -Infinity) - (a.share ?? -Infinity)],
  name: ["name", (a, b) => a.at - b.at],
  rejected: ["most rejected first", (a, b) => b.rejected - a.rejected],
};

const unusual = (run) => run.clients.some((c) => c.rejected > 0 || c.adversary || (!missing(c.share) && c.share < c.equal / 2));

function verdictSection(view) {
  const ui = view.ui;
  ui.order ||= unusual(view.run) ? "lowest" : "name";
  ui.filter ||= "";
  const count = h("p", { class: "note", role: "status" });
  const body = h("tbody", null);
  const more = h("button", { type: "button", onclick: () => ((ui.all = !ui.all), render()) });
  const filter = h(
    "input",
    {
      type: "search", id: "verdict-filter", value: ui.filter, autocomplete: "off",
      oninput: () => ((ui.filter = filter.value), render())
    }
  );
  const order = h("select", { id: "verdict-order", onchange: () => ((ui.order = order.value), render()) },
    Object.entries(ORDERS).map(([key, [label]]) => h("option", { value: key, selected: key === ui.order }, label)));

  function render() {
    const run = view.run;
    const words = ui.filter.toLowerCase();
    const found = run.clients.map((client, at) => ({ ...client, at })).filter(
      (client) => !words || visible(client.id).toLowerCase().includes(words) || visible(client.verdict).toLowerCase().includes(words)
    );
    found.sort((a, b) => ORDERS[ui.order][1](a, b) || a.at - b.at);
    const rows = ui.all || printing ? found : found.slice(0, FIRST_ROWS);
    const shares = run.clients.flatMap((c) => [c.share || 0, 2 * (c.equal || 0)]);
    const scale = [Math.min(0, ...shares), Math.max(...shares, 1e-9)];
    fill(body, rows.map((client) => verdictRow(client, scale)));
    fill(count, `Showing ${number(rows.length)} of ${plural(run.clients.length, "client")}.`);
    more.hidden = found.length <= FIRST_ROWS;
    more.textContent = ui.all ? `Show the first ${FIRST_ROWS}` : `Show all ${number(found.length)}`;
  }

  printed.add(render);
  const head = ["Client", "Share", "What happened"].map((name) => h("th", { scope: "col" }, name));
  const legend = h(
    "p", { class: "note" }, h("span", { class: "sample-tick", "aria-hidden": "true" }), " The tick marks an equal share."
  );
  const table = h("div", { class: "table plain", role: "region", tabindex: 0, "aria-label": "Verdicts" },
    h(
      "table", { class: "verdicts" },
      h("caption", { class: "unseen" }, "Share and verdict of every client"), h("thead", null, h("tr", null, head)),
      body
    ));
  const controls = h("div", { class: "controls" },
    h("label", { for: "verdict-filter" }, "Find ", filter), h("label", { for: "verdict-order" }, "Sort by ", order), count);
  const made = section("verdicts", "Verdicts", "Verdicts", (run) => run.clients.length > 0, h(
    "div", null, controls, table, more, legend
  ), render,
    "How much each client counted in the model, on average over the rounds it took part in, and why.");
  return { ...made, dispose: () => printed.delete(render) };
}

function verdictRow(client, [low, high]) {
  const place = (x) => (100 * (x - low)) / (high - low);
  const [from, to] = [Math.min(client.share || 0, 0), Math.max(client.share || 0, 0)];
  const bar = h("span", { class: "share", "aria-hidden": "true" },
    h(
      "span",
      { class: "fill" + (client.share < 0 ? " negative" : ""), style: `left:${place(from)}%;width:${place(to) - place(from)}%` }
    ),
    !missing(client.equal) && h("span", { class: "tick", style: `left:${place(client.equal)}%` }));
  const text = client.verdict || "";
  const rest = text.startsWith(client.id) ? text.slice(client.id.length).trimStart() : text;
  return h("tr", null,
    h(
      "th", { scope: "row" }, nameOf(client.id, 32),
      client.adversary === true && h("span", { class: "tag" }, "adversary in this simulation")
    ),
    h(
      "td",
      { class: "amount", title: missing(client.equal) ? null : `equal share ${percent(client.equal)}` },
      bar, h("span", { class: "value" }, percent(client.share))
    ),
    h("td", null, rest ? shorten(rest[0].toUpperCase() + rest.slice(1), 600) : "–"));
}
