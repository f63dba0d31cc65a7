// Chosen clients over the rounds: weight, one column of evidence, and the measure, one above the other.

const MOST_CHOSEN = 12;

// The three lowest and the two highest shares.
function firstChosen(run) {
  const known = run.clients.map((_, at) => at).filter((at) => !missing(run.clients[at].share));
  known.sort((a, b) => run.clients[a].share - run.clients[b].share);
  return [...new Set([...known.slice(0, 3), ...known.slice(-2)])].map((at) => run.clients[at].id);
}

function chosenSection(view) {
  const ui = view.ui;
  ui.chosen ||= firstChosen(view.run);
  const chips = h("ul", { class: "chips", "aria-label": "Chosen clients" });
  const names = h("datalist", { id: "client-names" });
  const wrong = h("span", { class: "note", role: "status" });
  const search = h("input", { id: "client-search", list: "client-names", autocomplete: "off", placeholder: "name of a client" });
  const form = h("form", { class: "controls", onsubmit: (event) => (event.preventDefault(), find()) },
    h(
      "label", { for: "client-search" }, "Add a client ", search
    ), names, h("button", { type: "submit", class: "small" }, "Add"), wrong);
  const select = h("select", { id: "evidence", onchange: () => ((ui.evidence = select.value), figure.draw()) });
  const choice = h("div", { class: "controls" }, h("label", { for: "evidence" }, "Evidence ", select));
  const figure = new Figure({
    title: "Weight, evidence and score", kind: "stacked", before: h("div", null, form, chips, choice),
    compute: () => chosenPicture(view.run, ui)
  });
  search.addEventListener("input", () => view.run.clients.some((client) => visible(client.id) === search.value) && find());

  function find() {
    const words = search.value.trim().toLowerCase();
    const at = view.run.clients.findIndex((client) => visible(client.id).toLowerCase() === words);
    const guess = at >= 0 || !words ? at : view.run.clients.findIndex(
      (client) => visible(client.id).toLowerCase().includes(words)
    );
    fill(wrong, guess < 0 && words ? "No client has that name." : null);
    if (guess >= 0) view.follow(guess);
  }

  view.follow = (at) => {
    const id = view.run.clients[at].id;
    ui.chosen = [...ui.chosen.filter((other) => other !== id), id].slice(-MOST_CHOSEN);
    search.value = "";
    showChips();
    figure.draw();
  };

  function remove(id) {
    const at = ui.chosen.indexOf(id);
    ui.chosen = ui.chosen.filter((other) => other !== id);
    showChips();
    (chips.querySelectorAll("button")[Math.min(at, ui.chosen.length - 1)] || search).focus();
    figure.draw();
  }

  function showChips() {
    fill(chips, ui.chosen.map((id, i) => h("li", { style: `--tone:${lineColour(i)}` }, h(
      "span", { class: "line " + DASHES[i % 6], "aria-hidden": "true" }
    ), nameOf(id, 28),
      h("button", { type: "button", "aria-label": "Remove " + shorten(id, 60), onclick: () => remove(id) }, "×"))));
  }

  let listed = "";
  function update() {
    const run = view.run;
    const now = JSON.stringify([run.clients.map((client) => client.id), run.evidence.columns.map((column) => column.label)]);
    if (now !== listed) {
      listed = now;
      fill(names, run.clients.map((client) => h("option", { value: visible(client.id).slice(0, 200) })));
      ui.evidence = evidenceColumn(run, ui)?.name;
      fill(
        select,
        run.evidence.columns.filter((column) => column.name !== run.measure?.name).map((column) => h(
          "option",
          { value: column.name, selected: column.name === ui.evidence }, column.label
        ))
      );
      choice.hidden = !ui.evidence;
    }
    figure.refresh();
  }
  figure.drawn = showChips; // the colours of the theme
  showChips();
  const made = section(
    "chosen", "Chosen clients over the rounds", "Clients",
    (run) => run.cells.bins.length > 0 && run.clients.length > 0, figure.element, update
  );
  return { ...made, figures: [figure] };
}

function evidenceColumn(run, ui) {
  const columns = run.evidence.columns.filter((column) => column.name !== run.measure?.name);
  return columns.find((column) => column.name === ui.evidence) || columns[0];
}

function median(values) {
  const sorted = values.filter((value) => !missing(value)).sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length ? (sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2) : null;
}

function chosenPicture(run, ui) {
  const at = new Map(run.clients.map((client, i) => [client.id, i]));
  const chosen = ui.chosen.filter((id) => at.has(id));
  const parts = [{ label: "weight", bins: run.cells.bins, values: run.cells.weight, share: true }];
  const column = evidenceColumn(run, ui);
  const measure = run.measure && run.evidence.columns.find((other) => other.name === run.measure.name);
  for (const part of [column, measure]) if (part && run.evidence.bins.length) parts.push({
    label: part.label, bins: run.evidence.bins, values: part.values
  });
  const axis = roundAxis(run.cells.bins);
  const plots = parts.map((part, p) => ({
    title: part.label[0].toUpperCase() + part.label.slice(1), height: p === parts.length - 1 ? 244 : 214,
    layout: {
      showlegend: false,
      xaxis: { ...axis, title: { text: p === parts.length - 1 ? "round" : "" } },
      yaxis: { tickformat: part.share ? ".3~p" : ".3~g", hoverformat: part.share ? ".3~p" : ".4~g" },
      margin: { b: p === parts.length - 1 ? 44 : 24 }
    },
    traces: [
      {
        ...lineOver(
          "median of all clients", part.bins, part.values.map(median), 0,
          { line: { color: colour("muted"), dash: "solid", width: 1.25 } }
        ).at(-1),
        marker: { color: colour("muted"), size: 3 }
      },
      ...chosen.flatMap((id, i) => lineOver(id, part.bins, part.values.map((row) => row[at.get(id)] ?? null), i)),
    ],
  }));
  const rows = () => chosen.flatMap((id) => parts.flatMap(
    (part) => part.bins.map((bin, k) => [
      id, part.label, bin[0] === bin[1] ? bin[0] : bin[0] + "–" + bin[1], part.values[k][at.get(id)] ?? null
    ])
  ));
  return {
    plots, note: [run.cells.note, run.evidence.note].filter((note, i, all) => note && all.indexOf(note) === i).join(" "),
    summary: `${plural(chosen.length, "client")}; the thin grey line is the median of all clients.`,
    table: { columns: ["client", "column", "round", "value"], rows },
  };
}
