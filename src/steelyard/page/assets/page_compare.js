// Several runs side by side: metrics, settings that differ, the main metric over the rounds, shares of clients.

function compareSection(data) {
  const { metrics, settings, clients } = data.comparison;
  const names = runNames(data.runs);
  const headings = names.map((name) => shorten(name, 32));
  const region = (label, table) => h("div", { class: "table", role: "region", tabindex: 0, "aria-label": label }, table);
  const list = [
    new Figure({ title: "Main score of every run over the rounds", compute: () => overlayPicture(data, names) }),
    new Figure({ title: "Share of every client in every run", compute: () => sharesPicture(clients, names) }),
  ];
  const body = h("div", null,
    metrics.length > 0 && region("Metrics", metricsTable(metrics, headings)),
    settings.length > 0 && region(
      "Settings",
      dataTable(
        "Settings that differ", ["setting", ...headings],
        settings.map(({ name, values }) => [name, ...values.map((value) => String(value ?? "–"))])
      )
    ),
    list.map((figure) => figure.element));
  return {
    ...section("compare", "Side by side", "Side by side", () => true, body, () => list.forEach((figure) => figure.refresh())),
    figures: list
  };
}

// Names of runs; where two runs share a name, the names of their folders.
function runNames(runs) {
  const names = runs.map((run) => run.name || run.key);
  return names.map((name, i) => (names.indexOf(name) === names.lastIndexOf(name) ? name : runs[i].key));
}

function metricsTable(metrics, headings) {
  const rows = metrics.map(({ name, label, better, values }) => {
    const numbers = values.filter((value) => !missing(value));
    const best = better && new Set(numbers).size > 1 ? Math[better === "higher" ? "max" : "min"](...numbers) : null;
    const cell = (value) => (best !== null && value === best ? h(
      "span", null, h("strong", null, number(value)), h("span", { class: "tag best" }, "best")
    ) : h("span", null, number(value)));
    return [(label || labelOf(name)) + (better ? ` (${better} is better)` : ""), ...values.map(cell)];
  });
  return dataTable("Metrics at the end", ["metric", ...headings], rows);
}

function overlayPicture(data, names) {
  const main = data.comparison.metrics.map((metric) => metric.name).find((name) => data.runs.some(
    (run) => latest(run.rounds.metrics.get(name)) !== null
  ));
  const shown = data.runs.map((run, i) => [run, names[i], i]).filter(
    ([run]) => main && latest(run.rounds.metrics.get(main)) !== null
  );
  if (!shown.length) return null;
  const label = data.comparison.metrics.find((metric) => metric.name === main).label || labelOf(main);
  const longest = shown.map(([run]) => run.rounds.bins).reduce((a, b) => (b.at(-1)[1] > a.at(-1)[1] ? b : a));
  return {
    note: shown.map(([run]) => run.rounds.note).find(Boolean),
    plots: [
      {
        height: 340,
        layout: { showlegend: true, xaxis: roundAxis(longest), yaxis: { title: { text: plain(label) }, tickformat: ".3~g" } },
        traces: shown.flatMap(([run, name, i]) => lineOver(name, run.rounds.bins, run.rounds.metrics.get(main), i))
      }
    ],
    summary: `${label}, last value: ` + shown.map(
      ([run, name]) => `${shorten(name)} ${number(latest(run.rounds.metrics.get(main)))}`
    ).join("; ") + ".",
    table: {
      columns: ["run", "round", label],
      rows: () => shown.flatMap(([run, name]) => run.rounds.bins.map(
        (bin, k) => [name, roundsOf(bin), run.rounds.metrics.get(main)[k] ?? null]
      ))
    },
  };
}

function sharesPicture(clients, names) {
  if (!clients.length) return null;
  const spread = (client) => Math.max(...client.shares.filter((x) => !missing(x))) - Math.min(
    ...client.shares.filter((x) => !missing(x))
  );
  const shown = clients.length <= 40 ? clients : [...clients].sort((a, b) => (spread(b) || 0) - (spread(a) || 0)).slice(0, 40);
  const side = narrow() ? 12 : 22;
  const traces = names.map((name, i) => (
    {
      type: "scatter", mode: "markers", name: plain(name, 32),
      x: shown.map((client) => client.shares[i] ?? null),
      y: shown.map((_, row) => row + 0.16 * (i - (names.length - 1) / 2) * Math.min(1, 4 / names.length)),
      marker: { color: lineColour(i), symbol: SYMBOLS[i % 6], size: 9 },
      text: shown.map((client) => plain(client.id, 40)), hoverinfo: "text+x+name"
    }
  ));
  const labels = shown.map((client) => plain(client.id, side));
  const layout = {
    showlegend: true, hovermode: "closest", margin: {
      l: 14 + 7.2 * Math.min(side, Math.max(3, ...labels.map((label) => label.length)))
    },
    xaxis: {
      title: { text: "share" }, tickformat: ".3~p", hoverformat: ".3~p", rangemode: "tozero", fixedrange: true,
      showgrid: true
    },
    yaxis: {
      range: [shown.length - 0.4, -0.6], autorange: false, tickmode: "array",
      tickvals: shown.map((_, row) => row), ticktext: labels, tickfont: { size: 12 }, zeroline: false
    },
  };
  return {
    note: shown.length < clients.length ? `The picture shows the ${shown.length} of ${number(clients.length)} clients whose share differs most between the runs.` : null,
    plots: [{ height: 110 + 24 * shown.length, layout, traces }],
    summary: "Mean weight of each client over the rounds it took part in.",
    table: {
      columns: ["client", ...names.flatMap((name) => [name + ": share", name + ": score"])],
      rows: () => clients.map((client) => [
        client.id,
        ...names.flatMap((_, i) => [client.shares[i] ?? null, client.scores?.[i] ?? null])
      ])
    },
  };
}

// Tabs that switch between runs: arrow keys move, as in every tab list.
function runTabs(runs, show) {
  const names = runNames(runs);
  const tabs = names.map((name, i) => h(
    "button",
    {
      type: "button", role: "tab", id: "tab-" + i, "aria-controls": "run-panel",
      onclick: () => select(i),
      onkeydown: (event) => move(event, i)
    },
    nameOf(name, 28)
  ));
  function select(i) {
    tabs.forEach((tab, k) => (tab.setAttribute("aria-selected", k === i), (tab.tabIndex = k === i ? 0 : -1)));
    show(i);
  }
  function move(event, i) {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    select(next);
    tabs[next].focus();
  }
  return { element: h("div", { role: "tablist", class: "tabs", "aria-label": "Runs" }, tabs), select };
}
