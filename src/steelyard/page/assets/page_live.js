// Following a run: messages of the server change the data in place; the sections draw what changed.

// Metrics become a map, because names such as "__proto__" are not safe in an object.
function prepared(data) {
  for (const run of data.runs) run.rounds.metrics = new Map(Object.entries(run.rounds.metrics));
  return data;
}

const kept = (old, k) => {
  const values = (old || []).slice(0, k);
  while (values.length < k) values.push(null);
  return values;
};

// An update replaces the columns from `from` on.
function applyUpdate(run, message) {
  for (const [name, value] of Object.entries(message.fields || {})) if (Object.hasOwn(run, name)) run[name] = value;
  for (const part of ["cells", "evidence", "rounds"])
    if (message[part]) {
      run[part].bins = [...kept(run[part].bins, message[part].from), ...message[part].bins];
      run[part].note = message[part].note;
    }
  if (message.cells)
    for (const name of ["weight", "rejected", "reason"]) run.cells[name] = [
      ...kept(run.cells[name], message.cells.from), ...message.cells[name]
    ];
  if (message.evidence)
    run.evidence.columns.forEach((column, i) => (
      column.values = [...kept(column.values, message.evidence.from), ...(message.evidence.columns[i] || [])]
    ));
  if (message.rounds) applyRounds(run.rounds, message.rounds);
}

function applyRounds(rounds, { from, metrics, seconds }) {
  const length = rounds.bins.length;
  const grown = (old, tail) => kept([...kept(old, from), ...(tail || [])], length);
  const tails = new Map(Object.entries(metrics || {}));
  for (const name of new Set(
    [...rounds.metrics.keys(), ...tails.keys()]
  )) rounds.metrics.set(name, grown(rounds.metrics.get(name), tails.get(name)));
  const stages = new Map(Object.entries(seconds || {}));
  const all = new Set([...Object.keys(rounds.seconds), ...stages.keys()]);
  rounds.seconds = Object.fromEntries([...all].map((name) => [name, grown(rounds.seconds[name], stages.get(name))]));
}

const QUIET = 15000; // milliseconds between two spoken messages about the progress

function follow(url, page) {
  const source = new EventSource(url);
  const state = document.getElementById("state");
  let [said, connected] = [-QUIET, null];
  const show = (label, kind) => fill(state, h("span", { class: "badge " + kind }, label));

  function connection(now) {
    if (now === connected) return;
    if (connected !== null) announce(now ? "The connection is back." : "The connection is lost.");
    connected = now;
  }
  source.onopen = () => connection(true);
  source.onerror = () => {
    connection(false);
    if (page.data) page.data.runs.every((run) => run.status !== "running") ? show("the run has ended", "ended") : show("connection lost, trying again", "lost");
    else fill(
      document.getElementById("waiting"),
      "No connection to the server yet. Is the program that shows this page still running?"
    );
  };
  source.onmessage = ({ data }) => {
    connection(true);
    const message = JSON.parse(data);
    if (message.type === "snapshot") page.show(prepared(message.data));
    else if (message.type === "update") {
      const run = page.data?.runs.find((run) => run.key === message.key);
      if (!run) return;
      applyUpdate(run, message);
      page.update();
    }
    tell(page.data.runs);
  };

  let ended = false;
  function tell(runs) {
    const running = runs.filter((run) => run.status === "running");
    show(running.length ? "live" : "the run has ended", running.length ? "live" : "ended");
    const over = !running.length;
    if (over ? !ended : performance.now() - said > QUIET) {
      announce(over ? `The run is ${runs[0].status}. ${runs[0].headline}` : progress(running[0]));
      said = performance.now();
    }
    ended = over;
  }
}
