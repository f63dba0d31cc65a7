// Starts the page: reads the data, builds the sections, loads the charts.

const SECTIONS = [
  verdictSection, heatmapSection, chosenSection, modelSection, fairnessSection, detectionSection,
  posteriorSection, trafficSection, repeatSection
];

class PageView {
  constructor() {
    this.memory = new Map(); // choices of the reader, by run
    this.sections = [];
    this.compared = [];
  }

  // New data: the first ones, or a whole new state of a run that is followed.
  show(data) {
    const same = this.data && data.runs.length === this.data.runs.length && data.runs.every(
      (run, i) => run.key === this.data.runs[i].key
    );
    this.data = data;
    if (!same) return this.build();
    this.view.run = data.runs[this.at];
    return this.update();
  }

  build() {
    [...this.compared, ...this.sections].forEach(dispose);
    const main = document.getElementById("main");
    const several = this.data.runs.length > 1;
    this.panel = h("div", several ? { id: "run-panel", role: "tabpanel" } : null);
    this.compared = several && this.data.comparison ? [compareSection(this.data)] : [];
    const tabs = several && runTabs(this.data.runs, (at) => this.showRun(at));
    fill(
      main,
      several && h("h1", null, `Comparison of ${this.data.runs.length} runs`),
      this.compared.map((part) => part.element), tabs && tabs.element, this.panel
    );
    tabs ? tabs.select(0) : this.showRun(0);
  }

  showRun(at) {
    this.sections.forEach(dispose);
    this.at = at;
    const run = this.data.runs[at];
    if (!this.memory.has(run.key)) this.memory.set(run.key, {});
    const view = (this.view = { run, ui: this.memory.get(run.key) });
    this.sections = [headline(view, this.data.runs.length > 1 ? "h2" : "h1"), ...SECTIONS.map((make) => make(view))];
    fill(this.panel, this.sections.map((part) => part.element));
    if (this.data.runs.length > 1) this.panel.setAttribute("aria-labelledby", "tab-" + at);
    this.update();
    fill(document.querySelector("footer"), `${run.path || run.key} · steelyard ${run.version || ""}`);
  }

  update() {
    const shown = [...this.compared, ...this.sections].filter((part) => {
      part.element.hidden = !part.present(this.view.run);
      if (!part.element.hidden) part.update();
      return !part.element.hidden;
    });
    const names = shown.map((part) => part.id).join();
    if (names === this.named) return;
    this.named = names;
    const nav = document.getElementById("nav");
    nav.hidden = false;
    fill(nav, h("ul", null, shown.map((part) => h("li", null, h("a", { href: "#" + part.id }, part.label)))));
  }
}

function dispose(part) {
  part.figures?.forEach((figure) => figure.dispose());
  part.dispose?.();
}

// The text of a packed element: base64 of gzip.
async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const content = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) content[i] = packed.charCodeAt(i); // several times faster than from()
  return new Response(new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function startSaved(page) {
  if (typeof DecompressionStream === "undefined") {
    const waiting = document.getElementById("waiting");
    return fill(
      waiting,
      "This browser is too old to unpack the page. Open the file with a current version of Firefox, Chrome, Edge or Safari."
    );
  }
  const [data, plotly] = [unpack("packed-data"), unpack("packed-plotly")]; // unpacked side by side
  page.show(prepared(JSON.parse(await data)));
  const script = document.createElement("script");
  script.textContent = await plotly;
  document.head.append(script);
  document.documentElement.dataset.charts = "ready";
  for (const figure of figures) figure.refresh();
}

function liveLinks({ base }) {
  const here = /\/run\/([^/]+)\/$/.exec(location.pathname);
  const link = (href, text) => h("a", { href: base + href }, text);
  document.querySelector(".brand").after(h(
    "span", { class: "links" }, here && link("", "All runs"), here && link("report/" + here[1], "Save the report")
  ));
}

function start() {
  startTheme();
  const { view, base, events, runs } = document.body.dataset;
  if (view === "list") return listPage(base, runs);
  const page = new PageView();
  document.getElementById("waiting").hidden = false;
  if (view === "saved") return startSaved(page);
  fill(document.getElementById("waiting"), "Waiting for the first message of the run …");
  liveLinks({ base });
  return follow(events, page);
}

start();
