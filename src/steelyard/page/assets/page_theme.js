// Light and dark: from the system, or from the button. The colours of charts are read from page.css.

const LINES = {
  light: ["#0072b2", "#c44f00", "#007a5a", "#a4417f", "#7a6200", "#1d2b33"],
  dark: ["#56b4e9", "#f5945c", "#3fd0a4", "#e59ac6", "#e8c94a", "#e6edef"],
};
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross"];
const PATTERNS = ["", "/", ".", "x", "-", "|"];

const wantsDark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
let printing = false;

const theme = () => (printing ? "light" : chosenTheme || (wantsDark.matches ? "dark" : "light"));
const lineColour = (i) => LINES[theme()][i % 6];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function applyTheme() {
  document.documentElement.dataset.theme = theme();
  const button = document.getElementById("theme");
  button.hidden = false;
  button.textContent = theme() === "dark" ? "Light theme" : "Dark theme";
  for (const figure of figures) figure.refresh();
}

function startTheme() {
  try {
    chosenTheme = ["light", "dark"].find((name) => name === localStorage.getItem("steelyard-theme")) || null;
  } catch {} // no permission to store: the system's setting
  document.getElementById("theme").addEventListener("click", () => {
    chosenTheme = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("steelyard-theme", chosenTheme);
    } catch {}
    applyTheme();
  });
  wantsDark.addEventListener("change", applyTheme);
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
  applyTheme();
}

// Paper: light, every verdict, and every chart drawn at the width of a page.
function setPrinting(now) {
  printing = now;
  document.documentElement.classList.toggle("printing", now);
  applyTheme();
  for (const render of printed) render();
  for (const figure of figures) figure.draw();
}
const printed = new Set(); // what renders differently on paper
