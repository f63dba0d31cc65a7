// What the rounds cost: bytes and seconds.

function trafficSection(view) {
  const names = (run) => known(run, ["bytes", "bytes_of_whole_models"]);
  const label = (name) => (name === "bytes" ? "sent and received" : "whole models would be");
  const stages = (run) => Object.entries(run.rounds.seconds || {}).filter(([, values]) => latest(values) !== null);
  return figureSection(view, "traffic", "Traffic and time", "Traffic", (run) => names(run).length + stages(run).length > 0, [
    new Figure({ title: "Bytes per round", compute: () => {
      const made = together(
        view.run, names(view.run), label,
        { yaxis: { tickformat: "~s", ticksuffix: "B", hoverformat: ".3~s", rangemode: "tozero" } }
      );
      return made && {
        ...made,
        summary: "Last round: " + names(view.run).map(
          (name) => `${label(name)} ${bytes(latest(view.run.rounds.metrics.get(name)))}`
        ).join("; ") + "."
      };
    } }),
    new Figure({ title: "Seconds per round, by stage", compute: () => secondsPicture(view.run, stages(view.run)) }),
  ]);
}

function secondsPicture(run, stages) {
  if (!stages.length) return null;
  const { bins, note } = run.rounds;
  const total = (values) => values.reduce((sum, value) => sum + (value || 0), 0);
  const traces = stages.map(([name, values], i) => (
    {
      type: "bar", name: plain(name), x: bins.map(middle), y: values,
      width: bins.map(([a, b]) => 0.85 * (b - a + 1)),
      marker: {
        color: lineColour(i), line: { width: 0 },
        pattern: {
          shape: bins.length > 100 ? "" : PATTERNS[i % 6], solidity: 0.25, size: 6, fgcolor: colour("bg"),
          fgopacity: 0.9, fillmode: "overlay", bgcolor: lineColour(i)
        }
      }
    }
  ));
  return {
    note, plots: [
      {
        height: 300, traces,
        layout: {
          barmode: "stack", showlegend: true, xaxis: roundAxis(bins), yaxis: { title: { text: "seconds" }, tickformat: ".3~g" }
        }
      }
    ],
    summary: "On average: " + stages.map(([name, values]) => `${name} ${duration(total(values) / bins.length)}`).join(", ") + ".",
    table: seriesTable(bins, stages),
  };
}
