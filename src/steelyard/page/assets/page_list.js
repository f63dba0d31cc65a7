// The list of a folder's runs: search, sort, open, compare. It is asked again every three seconds.

const REFRESH = 3000;
const SCORES = new Map(Object.entries(
  { accuracy: "accuracy", mse: "MSE", client_accuracy: "client accuracy", client_mse: "client MSE" }
));
const COLUMNS = [
  ["name", "Run", (run) => run.name || run.key],
  ["status", "Status", (run) => run.status || ""],
  ["done", "Rounds", (run) => run.done || 0],
  ["score", "Score", (run) => run.score ?? -Infinity],
  ["rule", "Weighing", (run) => run.rule || ""],
  ["seed", "Seed", (run) => run.seed ?? -Infinity],
  ["seconds", "Time", (run) => run.seconds || 0],
  ["started", "Started", (run) => run.started || ""],
];

function listPage(base, url) {
  const ui = { sort: "started", down: true, words: "", chosen: new Set() };
  let runs = [];
  let shown = "";
  const count = h("p", { class: "note", role: "status" });
  const trouble = h("p", { class: "banner warning", hidden: true }, "The server does not answer. The list is as it was.");
  const filter = h(
    "input",
    { type: "search", id: "run-filter", autocomplete: "off", oninput: () => ((ui.words = filter.value.toLowerCase()), render()) }
  );
  const compare = h("a", { class: "button", role: "link" });
  const body = h("tbody", null);
  const heads = COLUMNS.map(([key, label]) => h(
    "th", { scope: "col" },
    h("button", { type: "button", onclick: () => sortBy(key) }, label)
  ));
  const table = h("table", { class: "runs" }, h("caption", { class: "unseen" }, "Runs of this folder"),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Compare")), heads)), body);

  function sortBy(key) {
    [ui.sort, ui.down] = [key, ui.sort === key ? !ui.down : key !== "name"];
    render();
  }

  function choose(key, on) {
    ui.chosen[on ? "add" : "delete"](key);
    showCompare();
  }

  function showCompare() {
    const keys = runs.map((run) => run.key).filter((key) => ui.chosen.has(key));
    const ready = keys.length >= 2;
    compare.textContent = ready ? `Compare ${keys.length} runs` : "Compare: choose two or more runs";
    compare.setAttribute("aria-disabled", !ready);
    ready ? (compare.href = base + "compare/?" + keys.map(
      (key) => "run=" + encodeURIComponent(key)
    ).join("&")) : compare.removeAttribute("href");
  }

  function render() {
    const value = COLUMNS.find(([key]) => key === ui.sort)[2];
    const found = runs.filter((run) => [run.name, run.key, run.about, run.status, run.rule].some(
      (text) => String(text ?? "").toLowerCase().includes(ui.words)
    ));
    const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
    found.sort((a, b) => (ui.down ? -order(a, b) : order(a, b)) || (a.key < b.key ? 1 : -1));
    COLUMNS.forEach(([key], i) => heads[i].setAttribute(
      "aria-sort",
      key !== ui.sort ? "none" : ui.down ? "descending" : "ascending"
    ));
    const focused = document.activeElement?.dataset?.focus;
    fill(body, found.map(row));
    if (focused) [...body.querySelectorAll("[data-focus]")].find((element) => element.dataset.focus === focused)?.focus();
    fill(
      count,
      runs.length ? `Showing ${number(found.length)} of ${plural(runs.length, "run")}.` : "There is no run in this folder yet."
    );
    showCompare();
  }

  function row(run) {
    const open = base + "run/" + encodeURIComponent(run.key) + "/";
    const about = run.error || run.about;
    const tick = h(
      "input",
      {
        type: "checkbox", checked: ui.chosen.has(run.key),
        "aria-label": "Compare " + shorten(run.name || run.key, 60), "data-focus": "tick " + run.key,
        onchange: () => choose(run.key, tick.checked)
      }
    );
    return h("tr", null, h("td", null, tick),
      h(
        "th", { scope: "row" },
        h("a", { href: open, "data-focus": "open " + run.key }, nameOf(run.name || run.key, 48)),
        h("span", { class: "note" }, nameOf(run.key, 60)), about && h("span", { class: "note" }, shorten(about, 120))
      ),
      h("td", null, statusBadge(run.status)),
      h("td", { class: "number" }, number(run.done) + (missing(run.planned) ? "" : " of " + number(run.planned))),
      h(
        "td", { class: "number" },
        missing(run.score) ? "–" : [
          number(run.score),
          h("span", { class: "note" }, SCORES.get(run.score_name) || run.score_name || "")
        ]
      ),
      h("td", null, run.rule ? nameOf(run.rule, 24) : "–"), h(
        "td", { class: "number" }, missing(run.seed) ? "–" : String(run.seed)
      ),
      h("td", { class: "number" }, duration(run.seconds)), h("td", { class: "number" }, date(run.started)));
  }

  async function load() {
    try {
      const answer = await fetch(url, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      trouble.hidden = true;
      if (text === shown) return;
      shown = text;
      runs = JSON.parse(text).runs;
      render();
    } catch {
      trouble.hidden = false;
    } finally {
      setTimeout(load, REFRESH);
    }
  }

  fill(document.getElementById("main"), h("h1", null, document.title), trouble,
    h("div", { class: "controls" }, h("label", { for: "run-filter" }, "Find ", filter), compare, count),
    h("div", { class: "table plain", role: "region", tabindex: 0, "aria-label": "Runs" }, table));
  load();
}
