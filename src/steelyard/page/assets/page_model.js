// The model over the rounds: scores, calibration, fairness, detection, posterior, traffic and time.

const LABELS = new Map(Object.entries({
  accuracy: "test accuracy", nll: "negative log-likelihood (NLL)", ece: "calibration error (ECE)", brier: "Brier score", mse: "mean squared error", r2: "R²", loss: "training loss",
  nll_scaled: "NLL after temperature scaling", ece_scaled: "ECE after temperature scaling", temperature: "temperature",
}));
const ELSEWHERE = /^(client_|detection_|sigma\.|bytes|used$|rejected$|effective_clients$)/;
const labelOf = (name) => LABELS.get(name) || name.replaceAll("_", " ");

function seriesTable(bins, series) {
  const rounds = (bin) => (bin[0] === bin[1] ? bin[0] : bin[0] + "–" + bin[1]);
  return { columns: ["round", ...series.map(([label]) => label)], rows: () => bins.map((bin, k) => [String(rounds(bin)), ...series.map(([, values]) => values[k] ?? null)]) };
}

const known = (run, names) => names.filter((name) => latest(run.rounds.metrics.get(name)) !== null);

// Small charts side by side, one for each metric.
function multiples(run, names) {
  const { bins, metrics, note } = run.rounds;
  if (!names.length) return null;
  return {
    note,
    plots: names.map((name) => ({ title: labelOf(name), height: 210, layout: { showlegend: false, xaxis: roundAxis(bins), yaxis: { tickformat: ".3~g" } }, traces: lineOver(labelOf(name), bins, metrics.get(name), 0, { line: { color: colour("accent") } }) })),
    summary: "Last values: " + names.map((name) => `${labelOf(name)} ${number(latest(metrics.get(name)))}`).join("; ") + ".",
    table: seriesTable(bins, names.map((name) => [labelOf(name), metrics.get(name)])),
  };
}

// One chart with a line for each metric.
function together(run, names, label, layout = {}, most = 12) {
  const { bins, metrics, note } = run.rounds;
  if (!names.length) return null;
  const drawn = names.slice(0, most);
  const more = names.length > most ? `The chart shows ${most} of ${names.length}; the table has all of them.` : "";
  return {
    note: [note, more].filter(Boolean).join(" "),
    plots: [{ height: heightFor(300, drawn.length), layout: { showlegend: true, xaxis: roundAxis(bins), yaxis: { tickformat: ".3~g" }, ...layout }, traces: drawn.flatMap((name, i) => lineOver(label(name), bins, metrics.get(name), i)) }],
    summary: "Last values: " + drawn.map((name) => `${label(name)} ${number(latest(metrics.get(name)))}`).join("; ") + ".",
    table: seriesTable(bins, names.map((name) => [label(name), metrics.get(name)])),
  };
}

const modelMetrics = (run) => known(run, [...LABELS.keys()]);
const otherMetrics = (run) => known(run, [...run.rounds.metrics.keys()].filter((name) => !LABELS.has(name) && !ELSEWHERE.test(name)));

function modelSection(view) {
  return figureSection(view, "model", "The model", "Model", (run) => modelMetrics(run).length + otherMetrics(run).length > 0 || run.calibration, [
    new Figure({ title: "Scores over the rounds", compute: () => multiples(view.run, modelMetrics(view.run)) }),
    new Figure({ title: "Reliability diagram", kind: "stacked narrow", compute: () => view.run.calibration && reliabilityPicture(view.run.calibration) }),
    new Figure({ title: "Other figures of the rounds", compute: () => multiples(view.run, otherMetrics(view.run)) }),
  ]);
}

function reliabilityPicture({ title, ece, bins }) {
  const full = bins.filter((bin) => bin.count > 0);
  const centre = (bin) => (bin.low + bin.high) / 2;
  const wide = full.map((bin) => 0.92 * (bin.high - bin.low));
  const axis = { range: [0, 1], autorange: false, fixedrange: true, tickformat: ".0%", hoverformat: ".0%" };
  const bars = (y, extra) => ({ type: "bar", x: full.map(centre), y, width: wide, marker: { color: colour("accent-soft"), line: { color: colour("accent"), width: 1 } }, showlegend: false, ...extra });
  const diagonal = { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], name: "perfect calibration", line: { dash: "dash", color: colour("muted"), width: 1.5 }, hoverinfo: "skip" };
  const points = { type: "scatter", mode: "markers", x: full.map((bin) => bin.confidence), y: full.map((bin) => bin.accuracy), name: "mean confidence of the bin", marker: { color: colour("ink"), size: 7, symbol: "diamond" }, hoverinfo: "skip" };
  return {
    plots: [
      { height: 330, layout: { xaxis: { ...axis, title: { text: "" } }, yaxis: { ...axis, title: { text: "accuracy" } }, margin: { b: 24 } }, traces: [bars(full.map((bin) => bin.accuracy), { name: "accuracy" }), diagonal, points] },
      { height: 150, layout: { xaxis: { ...axis, title: { text: "confidence" } }, yaxis: { title: { text: "examples" }, tickformat: "~s" } }, traces: [bars(full.map((bin) => bin.count), { name: "examples" })] },
    ],
    summary: `${title}: expected calibration error ${number(ece)}. Bars below the dashed line mean that the model is too sure of itself.`,
    table: { columns: ["confidence", "examples", "mean confidence", "accuracy"], rows: () => bins.map((bin) => [`${percent(bin.low)} to ${percent(bin.high)}`, bin.count, bin.confidence, bin.accuracy]) },
  };
}

function fairnessSection(view) {
  const names = (run) => known(run, [...run.rounds.metrics.keys()].filter((name) => name.startsWith("client_")));
  const label = (name) => {
    const [, part] = /_(worst10|sd|weighted|min|max)$/.exec(name) || [];
    return { worst10: "worst 10 %", sd: "standard deviation", weighted: "mean, weighted by examples", min: "lowest", max: "highest" }[part] || "mean of the clients";
  };
  const spread = (name) => name.endsWith("_sd");
  const over = () => {
    const all = names(view.run);
    const level = together(view.run, all.filter((name) => !/_(sd|weighted|min|max)$/.test(name)), label);
    const around = together(view.run, all.filter(spread), label);
    if (!level || !around) return level || around;
    level.plots[0].title = "Level";
    around.plots[0].title = "Spread between clients";
    return { ...level, plots: [...level.plots, ...around.plots], summary: level.summary.replace(/\.$/, "; ") + around.summary.replace("Last values: ", ""), table: seriesTable(view.run.rounds.bins, all.map((name) => [label(name), view.run.rounds.metrics.get(name)])) };
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
  const line = (y, text, dash) => ({ shape: { type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: colour("ink"), width: 1.25, dash } },
    note: { xref: "paper", x: 1, xanchor: "right", y, yanchor: "bottom", text, showarrow: false, font: { color: colour("ink"), size: 12 }, bgcolor: colour("bg"), borderpad: 2 } });
  const lines = [line(average, `mean ${number(average)}`, "solid"), line(low, `worst 10 % ${number(low)}`, "dash")];
  const dots = (chosen, name, symbol, tone) => {
    const at = scored.map((client, i) => [client, i]).filter(([client]) => Boolean(client.adversary) === chosen);
    return { type: "scatter", mode: "markers", name, x: at.map(([, i]) => i + 1), y: at.map(([client]) => client.score), text: at.map(([client]) => plain(client.id, 40)), hoverinfo: "text+y", marker: { symbol, color: tone, size: scored.length > 200 ? 5 : 9 } };
  };
  const hostile = scored.some((client) => client.adversary);
  return {
    plots: [{ height: 300, traces: [dots(false, "client", "circle", colour("accent")), ...(hostile ? [dots(true, "adversary", "x", colour("warm"))] : [])],
      layout: { showlegend: hostile, hovermode: "closest", shapes: lines.map((l) => l.shape), annotations: lines.map((l) => l.note), xaxis: { title: { text: "clients, the worst first" }, range: [0.3, scored.length + 0.7], autorange: false, fixedrange: true, tickformat: ",d", ...(scored.length < 12 ? { dtick: 1 } : {}) }, yaxis: { title: { text: run.measure?.name || "score" }, tickformat: ".3~g" } } }],
    summary: `${run.measure?.label || "score"}: mean ${number(average)}, worst 10 % ${number(low)}, from ${number(scored[0].score)} to ${number(scored.at(-1).score)}.`,
    table: { columns: ["client", run.measure?.name || "score", "examples"], rows: () => scored.map((client) => [client.id, client.score, client.samples]) },
  };
}

function detectionSection(view) {
  const names = (run) => known(run, ["detection_auroc", "detection_precision", "detection_recall"]);
  const label = (name) => ({ auroc: "AUROC", precision: "precision", recall: "recall" })[name.slice(10)];
  return figureSection(view, "detection", "Detection of adversaries", "Detection", (run) => names(run).length > 0, [
    new Figure({ title: "How well the weights tell adversaries from honest clients", compute: () => together(view.run, names(view.run), label, { yaxis: { range: [-0.03, 1.05], autorange: false, tickformat: ".1f" } }) }),
  ], "The adversaries are known in this simulation. The rule that weighs the clients does not know them.");
}

function posteriorSection(view) {
  const names = (run) => known(run, [...run.rounds.metrics.keys()].filter((name) => name.startsWith("sigma.")));
  return figureSection(view, "posterior", "Posterior", "Posterior", (run) => names(run).length > 0, [
    new Figure({ title: "Standard deviation σ of the posterior, by layer", compute: () => together(view.run, names(view.run), (name) => name.slice(6)) }),
  ]);
}

function trafficSection(view) {
  const names = (run) => known(run, ["bytes", "bytes_of_whole_models"]);
  const label = (name) => (name === "bytes" ? "sent and received" : "whole models would be");
  const stages = (run) => Object.entries(run.rounds.seconds || {}).filter(([, values]) => latest(values) !== null);
  return figureSection(view, "traffic", "Traffic and time", "Traffic", (run) => names(run).length + stages(run).length > 0, [
    new Figure({ title: "Bytes per round", compute: () => {
      const made = together(view.run, names(view.run), label, { yaxis: { tickformat: "~s", ticksuffix: "B", hoverformat: ".3~s", rangemode: "tozero" } });
      return made && { ...made, summary: "Last round: " + names(view.run).map((name) => `${label(name)} ${bytes(latest(view.run.rounds.metrics.get(name)))}`).join("; ") + "." };
    } }),
    new Figure({ title: "Seconds per round, by stage", compute: () => secondsPicture(view.run, stages(view.run)) }),
  ]);
}

function secondsPicture(run, stages) {
  if (!stages.length) return null;
  const { bins, note } = run.rounds;
  const total = (values) => values.reduce((sum, value) => sum + (value || 0), 0);
  const traces = stages.map(([name, values], i) => ({ type: "bar", name: plain(name), x: bins.map(middle), y: values, width: bins.map(([a, b]) => 0.85 * (b - a + 1)), marker: { color: lineColour(i), line: { width: 0 }, pattern: { shape: bins.length > 100 ? "" : PATTERNS[i % 6], solidity: 0.25, size: 6, fgcolor: colour("bg"), fgopacity: 0.9, fillmode: "overlay", bgcolor: lineColour(i) } } }));
  return {
    note, plots: [{ height: 300, traces, layout: { barmode: "stack", showlegend: true, xaxis: roundAxis(bins), yaxis: { title: { text: "seconds" }, tickformat: ".3~g" } } }],
    summary: "On average: " + stages.map(([name, values]) => `${name} ${duration(total(values) / bins.length)}`).join(", ") + ".",
    table: seriesTable(bins, stages),
  };
}
