// The top of a run: name, headline sentence, tiles, warnings, status.

const STATUS = {
  running: ["●", "running"], finished: ["✓", "finished"], interrupted: ["‖", "interrupted"], failed: ["✕", "failed"],
};

function statusBadge(status) {
  const [sign, label] = STATUS[Object.hasOwn(STATUS, status) ? status : ""] || ["·", status || "unknown"];
  return h(
    "span", { class: "badge " + (label === status ? status : "") }, h("span", { "aria-hidden": "true" }, sign),
    " ", label
  );
}

// "round 12 of 30, about 40 s left"
function progress(run) {
  const planned = missing(run.planned) ? "" : " of " + number(run.planned);
  if (run.status !== "running") return plural(run.done, "round") + (
    planned && run.done !== run.planned ? planned : ""
  ) + " in " + duration(run.seconds);
  const left = run.done && !missing(run.planned) ? (run.seconds / run.done) * (run.planned - run.done) : 0;
  return "round " + number(run.done) + planned + (left > 0 ? ", about " + duration(Math.ceil(left)) + " left" : "");
}

function headline(view, level) {
  const about = h("p", { class: "about" });
  const sentence = h("p", { class: "headline" });
  const tiles = h("dl", { class: "tiles" });
  const banners = h("div", null);
  const status = h("p", { class: "status" });
  const meter = h("progress", { "aria-label": "Rounds done", hidden: true });
  const heading = h(level, null);
  const element = h(
    "section", { id: "headline", "aria-label": "Summary" }, heading, about, status, meter, banners,
    sentence, tiles
  );

  function update() {
    const run = view.run;
    fill(heading, nameOf(run.name || run.key, 80));
    fill(about, run.about);
    fill(
      status, statusBadge(run.status), " ",
      [progress(run), run.engine, missing(run.seed) ? "" : `seed ${run.seed}`].filter(Boolean).join(" · ")
    );
    meter.hidden = run.status !== "running" || missing(run.planned);
    if (!meter.hidden) Object.assign(meter, { max: run.planned, value: run.done });
    fill(banners, banner("Error", run.error), banner("Warning", run.warning), banner("Note", run.omitted));
    fill(sentence, run.headline);
    fill(
      tiles,
      (run.facts || []).map((fact) => h(
        "div", null, h("dt", null, fact.label), h("dd", null, fact.value), fact.note && h("dd", { class: "note" }, fact.note)
      ))
    );
  }
  return { id: "headline", label: "Summary", element, update, present: () => true };
}

function banner(kind, text) {
  return text ? h("p", { class: "banner " + kind.toLowerCase() }, h("strong", null, kind + ": "), text) : null;
}

// How to run it again: the command, the spec, the environment.
function repeatSection(view) {
  const body = h("div", null);
  let shown = null;
  function update() {
    const run = view.run;
    const now = JSON.stringify([run.command, run.spec, run.environment]);
    if (now === shown) return;
    shown = now;
    const button = h("button", { type: "button", class: "small", onclick: () => copy(run.command, button) }, "Copy");
    const code = (text) => Object.assign(h("pre", { tabindex: 0, role: "region", "aria-label": "Text" }), { textContent: text });
    fill(body,
      run.command && h("div", { class: "command" }, code(visible(run.command)), button),
      run.spec && h(
        "details", null, h("summary", null, "The whole specification"),
        code(run.spec.split("\n").map((line) => (line ? visible(line) : "")).join("\n"))
      ),
      run.environment?.length > 0 && h(
        "div",
        { class: "table", role: "region", tabindex: 0, "aria-label": "Environment" },
        dataTable("Environment", ["name", "value"], run.environment)
      ));
  }
  return section(
    "repeat", "How to repeat it", "Run again",
    (run) => run.command || run.spec || run.environment?.length > 0, body, update
  );
}

// A section of the page: hidden while it has no data.
function section(id, title, label, has, body, update, intro) {
  const element = h(
    "section", { id, "aria-labelledby": id + "-title" }, h("h2", { id: id + "-title" }, title),
    intro && h("p", { class: "intro" }, intro), body
  );
  return { id, label, element, update, present: has };
}

// A section made of figures only.
function figureSection(view, id, title, label, has, list, intro) {
  const body = h("div", null, list.map((figure) => figure.element));
  return { ...section(id, title, label, has, body, () => list.forEach((figure) => figure.refresh()), intro), figures: list };
}
