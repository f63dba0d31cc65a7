// The model over the rounds: scores, calibration, posterior.

const LABELS = new Map(Object.entries({
  accuracy: "test accuracy", nll: "negative log-likelihood (NLL)", ece: "calibration error (ECE)", brier: "Brier score", mse: "mean squared error", r2: "R²", loss: "training loss",
  validation_accuracy: "validation accuracy", validation_nll: "validation NLL", validation_ece: "calibration error (ECE) on validation data", validation_brier: "Brier score on validation data",
  validation_mse: "mean squared error on validation data", validation_r2: "R² on validation data", validation_loss: "validation loss",
  nll_scaled: "NLL after temperature scaling", ece_scaled: "ECE after temperature scaling", temperature: "temperature",
}));
const ELSEWHERE = /^(client_|detection_|sigma\.|bytes|used$|rejected$|effective_clients$)/;
const labelOf = (name) => LABELS.get(name) || name.replaceAll("_", " ");

function seriesTable(bins, series) {
  const rounds = (bin) => (bin[0] === bin[1] ? bin[0] : bin[0] + "–" + bin[1]);
  return {
    columns: ["round", ...series.map(([label]) => label)],
    rows: () => bins.map((bin, k) => [String(rounds(bin)), ...series.map(([, values]) => values[k] ?? null)])
  };
}

const known = (run, names) => names.filter((name) => latest(run.rounds.metrics.get(name)) !== null);

// Small charts side by side, one for each metric.
function multiples(run, names) {
  const { bins, metrics, note } = run.rounds;
  if (!names.length) return null;
  return {
    note,
    plots: names.map((name) => (
      {
        title: labelOf(name), height: 210,
        layout: { showlegend: false, xaxis: roundAxis(bins), yaxis: { tickformat: ".3~g" } },
        traces: lineOver(labelOf(name), bins, metrics.get(name), 0, { line: { color: colour("accent") } })
      }
    )),
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
    plots: [
      {
        height: heightFor(300, drawn.length),
        layout: { showlegend: true, xaxis: roundAxis(bins), yaxis: { tickformat: ".3~g" }, ...layout },
        traces: drawn.flatMap((name, i) => lineOver(label(name), bins, metrics.get(name), i))
      }
    ],
    summary: "Last values: " + drawn.map((name) => `${label(name)} ${number(latest(metrics.get(name)))}`).join("; ") + ".",
    table: seriesTable(bins, names.map((name) => [label(name), metrics.get(name)])),
  };
}

const modelMetrics = (run) => known(run, [...LABELS.keys()]);
const otherMetrics = (run) => known(
  run,
  [...run.rounds.metrics.keys()].filter((name) => !LABELS.has(name) && !ELSEWHERE.test(name))
);

function modelSection(view) {
  return figureSection(view, "model", "The model", "Model", (run) => modelMetrics(run).length + otherMetrics(run).length > 0 || run.calibration, [
    new Figure({ title: "Scores over the rounds", compute: () => multiples(view.run, modelMetrics(view.run)) }),
    new Figure({
      title: "Reliability diagram", kind: "stacked narrow",
      compute: () => view.run.calibration && reliabilityPicture(view.run.calibration)
    }),
    new Figure({ title: "Other figures of the rounds", compute: () => multiples(view.run, otherMetrics(view.run)) }),
  ]);
}

function reliabilityPicture({ title, ece, bins }) {
  const full = bins.filter((bin) => bin.count > 0);
  const centre = (bin) => (bin.low + bin.high) / 2;
  const wide = full.map((bin) => 0.92 * (bin.high - bin.low));
  const axis = { range: [0, 1], autorange: false, fixedrange: true, tickformat: ".0%", hoverformat: ".0%" };
  const bars = (y, extra) => ({
    type: "bar", x: full.map(centre), y, width: wide,
    marker: { color: colour("accent-soft"), line: { color: colour("accent"), width: 1 } }, showlegend: false,
    ...extra
  });
  const diagonal = {
    type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], name: "perfect calibration",
    line: { dash: "dash", color: colour("muted"), width: 1.5 }, hoverinfo: "skip"
  };
  const points = {
    type: "scatter", mode: "markers",
    x: full.map((bin) => bin.confidence),
    y: full.map((bin) => bin.accuracy), name: "mean confidence of the bin",
    marker: { color: colour("ink"), size: 7, symbol: "diamond" }, hoverinfo: "skip"
  };
  return {
    plots: [
      {
        height: 330,
        layout: { xaxis: { ...axis, title: { text: "" } }, yaxis: { ...axis, title: { text: "accuracy" } }, margin: { b: 24 } },
        traces: [bars(full.map((bin) => bin.accuracy), { name: "accuracy" }), diagonal, points]
      },
      {
        height: 150,
        layout: { xaxis: { ...axis, title: { text: "confidence" } }, yaxis: { title: { text: "examples" }, tickformat: "~s" } },
        traces: [bars(full.map((bin) => bin.count), { name: "examples" })]
      },
    ],
    summary: `${title}: expected calibration error ${number(ece)}. Bars below the dashed line mean that the model is too sure of itself.`,
    table: {
      columns: ["confidence", "examples", "mean confidence", "accuracy"],
      rows: () => bins.map((bin) => [`${percent(bin.low)} to ${percent(bin.high)}`, bin.count, bin.confidence, bin.accuracy])
    },
  };
}

function posteriorSection(view) {
  const names = (run) => known(run, [...run.rounds.metrics.keys()].filter((name) => name.startsWith("sigma.")));
  return figureSection(view, "posterior", "Posterior", "Posterior", (run) => names(run).length > 0, [
    new Figure({
      title: "Standard deviation σ of the posterior, by layer",
      compute: () => together(view.run, names(view.run), (name) => name.slice(6).replace(/^\d+$/, "layer $&"))
    }),
  ]);
}
