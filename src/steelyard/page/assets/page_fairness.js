// The clients: how well the model serves each of them, and how well adversaries are found.

function fairnessSection(view) {
  const names = (run) => known(run, [...run.rounds.metrics.keys()].filter((name) => name.startsWith("client_")));
  const label = (name) => {
    const [, part] = /_(worst10|sd|weighted|min|max)$/.exec(name) || [];
    return {
      worst10: "worst 10 %", sd: "standard deviation", weighted: "mean, weighted by examples", min: "lowest",
      max: "highest"
    }[part] || "mean of the clients";
  };
  const spread = (name) => name.endsWith("_sd");
  const over = () => {
    const all = names(view.run);
    const level = together(view.run, all.filter((name) => !/_(sd|weighted|min|max)$/.test(name)), label);
    const around = together(view.run, all.filter(spread), label);
    if (!level || !around) return level || around;
    level.plots[0].title = "Level";
    around.plots[0].title = "Spread between clients";
    return {
      ...level, plots: [...level.plots, ...around.plots],
      summary: level.summary.replace(/\.$/, "; ") + around.summary.replace("Last values: ", ""),
      table: seriesTable(view.run.rounds.bins, all.map((name) => [label(name), view.run.rounds.metrics.get(name)]))
    };
  };
  return figureSection(view, "fairness", "Fairness", "Fairness", (run) => run.clients.some((client) => !missing(client.score)) || names(run).length > 0, [
    new Figure({ title: "Every client at the end", compute: () => scoresPicture(view.run) }),
    new Figure({ title: "Fairness over the rounds", compute: over }),
  ]);
}

function scoresPicture(run) {
  const scored = run.clients.filter((client) => !missing(client.score));
  if (!scored.length) return null;
  const lower = run.measure?.better === "lower";
  scored.sort((a, b) => (lower ? b.score - a.score : a.score - b.score)); // the worst first
  const mean = (list) => list.reduce((sum, client) => sum + client.score, 0) / list.length;
  const worst = scored.slice(0, Math.max(1, Math.ceil(scored.length / 10)));
  const [average, low] = [mean(scored), mean(worst)];
  const line = (y, text, dash) => ({ shape: {
    type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: colour("ink"), width: 1.25, dash }
  },
    note: {
      xref: "paper", x: 1, xanchor: "right", y, yanchor: "bottom", text, showarrow: false,
      font: { color: colour("ink"), size: 12 }, bgcolor: colour("bg"), borderpad: 2
    } });
  const lines = [line(average, `mean ${number(average)}`, "solid"), line(low, `worst 10 % ${number(low)}`, "dash")];
  const dots = (chosen, name, symbol, tone) => {
    const at = scored.map((client, i) => [client, i]).filter(([client]) => Boolean(client.adversary) === chosen);
    return {
      type: "scatter", mode: "markers", name,
      x: at.map(([, i]) => i + 1),
      y: at.map(([client]) => client.score),
      text: at.map(([client]) => plain(client.id, 40)), hoverinfo: "text+y",
      marker: { symbol, color: tone, size: scored.length > 200 ? 5 : 9 }
    };
  };
  const hostile = scored.some((client) => client.adversary);
  return {
    plots: [{ height: 300, traces: [
      dots(false, "client", "circle", colour("accent")),
      ...(hostile ? [dots(true, "adversary", "x", colour("warm"))] : [])
    ],
      layout: {
        showlegend: hostile, hovermode: "closest",
        shapes: lines.map((l) => l.shape),
        annotations: lines.map((l) => l.note),
        xaxis: {
          title: { text: "clients, the worst first" }, range: [0.3, scored.length + 0.7], autorange: false,
          fixedrange: true, tickformat: ",d", ...(scored.length < 12 ? { dtick: 1 } : {})
        },
        yaxis: { title: { text: run.measure?.name || "score" }, tickformat: ".3~g" }
      } }],
    summary: `${run.measure?.label || "score"}: mean ${number(average)}, worst 10 % ${number(low)}, from ${number(scored[0].score)} to ${number(scored.at(-1).score)}.`,
    table: {
      columns: ["client", run.measure?.name || "score", "examples"],
      rows: () => scored.map((client) => [client.id, client.score, client.samples])
    },
  };
}

function detectionSection(view) {
  const names = (run) => known(run, ["detection_auroc", "detection_precision", "detection_recall"]);
  const label = (name) => ({ auroc: "AUROC", precision: "precision", recall: "recall" })[name.slice(10)];
  return figureSection(view, "detection", "Detection of adversaries", "Detection", (run) => names(run).length > 0, [
    new Figure({
      title: "How well the weights tell adversaries from honest clients",
      compute: () => together(
        view.run, names(view.run), label,
        { yaxis: { range: [-0.03, 1.05], autorange: false, tickformat: ".1f" } }
      )
    }),
  ], "The adversaries are known in this simulation. The rule that weighs the clients does not know them.");
}
