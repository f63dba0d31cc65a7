// Text: everything that reaches the page passes here. Names and reasons of clients are hostile.

const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;
const SPACE = "\u202f"; // between a number and its unit

function mark(character) {
  const code = character.codePointAt(0);
  return code < 32 ? String.fromCodePoint(0x2400 + code) : "\\u" + code.toString(16).padStart(4, "0");
}

// The text with control and direction characters replaced by visible marks.
const clean = (text) => String(text).replace(UNSEEN, mark);

// The same for a name, which may also be blank.
function visible(text) {
  const shown = clean(text);
  return shown.trim() ? shown : shown ? shown.replace(/\s/g, "␣") : "(empty)";
}

// At most `length` characters: the start, an ellipsis and the end.
function shorten(text, length = 28) {
  const shown = visible(text);
  if (shown.length <= length) return shown;
  const letters = Array.from(shown.length > 400 ? shown.slice(0, 200) + shown.slice(-200) : shown, (c) => c);
  if (letters.length <= length) return shown;
  const tail = Math.floor(length / 3);
  return letters.slice(0, length - tail - 1).join("") + "…" + letters.slice(letters.length - tail).join("");
}

// For texts inside plotly, which reads <b>, <br> or <a href> as formatting.
const plain = (text, length) =>
  shorten(text, length).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// h("p", {class: "note"}, "text", child): an element. Strings become text, never HTML.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : name === "title" ? visible(value).slice(0, 400) : value);
  }
  return fill(element, ...children);
}

function fill(element, ...children) {
  const nodes = children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
  element.replaceChildren(...nodes.map((child) => (child instanceof Node ? child : clean(child))));
  return element;
}

// A name, kept apart from the direction of the text around it; the full name is in the title.
function nameOf(text, length) {
  const shown = shorten(text, length);
  return h("bdi", { title: shown === String(text) ? null : text }, shown);
}

const missing = (x) => x === null || x === undefined || Number.isNaN(x);
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const number = (x) => (missing(x) ? "–" : typeof x === "number" ? digits.format(x).replace("-", "−") : visible(x));

function percent(x) {
  if (missing(x)) return "–";
  const value = 100 * x;
  const size = Math.abs(value);
  if (size > 0 && size < 0.01) return (value > 0 ? "under 0.01" : "over −0.01") + SPACE + "%";
  const text = size >= 99.95 || Number.isInteger(value) ? value.toFixed(0) : size >= 0.95 ? value.toFixed(1) : String(
    Number(value.toPrecision(1 + (size >= 0.1)))
  );
  return text.replace("-", "−") + SPACE + "%";
}

const times = (x) => (
  Math.abs(x) < 0.095 && x !== 0 ? x.toFixed(2) : Math.abs(x) < 10 ? x.toFixed(1) : x.toFixed(0)
) + SPACE + "×";
const plural = (n, word) => digits.format(n) + " " + word + (n === 1 ? "" : "s");

function scaled(x, units, step) {
  let at = 0;
  for (; Math.abs(x) >= step && at < units.length - 1; at++) x /= step;
  return Number(x.toPrecision(3)) + SPACE + units[at];
}
const bytes = (x) => (missing(x) ? "–" : scaled(x, ["B", "kB", "MB", "GB", "TB"], 1000));

function duration(seconds) {
  if (missing(seconds)) return "–";
  if (seconds < 100) return Number(seconds.toPrecision(2)) + SPACE + "s";
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? minutes + SPACE + "min" : Math.floor(minutes / 60) + SPACE + "h " + (minutes % 60) + SPACE + "min";
}

// "round 5", or "rounds 17 to 32" for a column that stands for several rounds.
const roundsOf = ([first, last]) => (first === last ? "round " + first : "rounds " + first + " to " + last);
const middle = ([first, last]) => (first + last) / 2;

function date(text) {
  const when = new Date(text || "");
  return Number.isNaN(when.getTime()) ? "–" : when.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

// A spreadsheet would run a text that starts like a formula, so such a text gets an apostrophe.
function csvCell(value) {
  if (missing(value)) return "";
  if (typeof value === "number") return String(value);
  const text = visible(value);
  return '"' + (/^\s*[=+\-@]/.test(text) ? "'" : "") + text.replace(/"/g, '""') + '"';
}
const csv = (columns, rows) => [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

async function copy(text, button) {
  const label = button.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "unseen", value: text });
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = done ? "Copied" : "Could not copy";
  announce(button.textContent);
  setTimeout(() => (button.textContent = label), 1500);
}

// Tells a screen reader, without moving the focus.
function announce(text) {
  document.getElementById("announce").textContent = visible(text);
}
