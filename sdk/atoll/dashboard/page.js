// Draws the document that lies in the page. What it writes is made by `show`, which takes a path
// into the document, so that whoever reads the page can look every number up; strings go into text
// nodes and attributes only. The files of the script are put together by page.py.
const source = document.getElementById("document");
const live = source.dataset.live, root = source.dataset.root;
const DECIMALS = Number(source.dataset.decimals); // of the network's token
let data = JSON.parse(source.textContent);
let other = null; // the document of the job that this one is compared with
let seenAt = Date.now();
let chosen = null; // of the grid: [round's row, seat]
let moment = null; // of the replay: a line of the log; null is the newest
const PATIENCE_MS = 8000; // for an answer, before the page says that none comes
const QUIET_MINUTES = 2; // without a new block, before the page says so

// --- elements ---

const SVG = "http://www.w3.org/2000/svg";
const fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
};
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// --- numbers ---

const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
const inWhole = (decimals) => (units) => {
  const scale = 10n ** BigInt(decimals);
  const [whole, part] = [BigInt(units) / scale, (BigInt(units) % scale) * 1000000n / scale];
  const fraction = part.toString().padStart(6, "0").replace(/0+$/, "");
  return grouped(whole.toString()) + (fraction ? "." + fraction : "");
};
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
function duration(seconds) {
  let left = Math.floor(seconds);
  const parts = UNITS.map(([size, unit]) => {
    const count = Math.floor(left / size);
    left -= count * size;
    return count ? `${count} ${unit}` : "";
  }).filter(Boolean);
  return parts.slice(0, 2).join(" ") || "0 s";
}
const FORMATS = {
  text: (value) => String(value),
  count: (value) => grouped(String(value)),
  tokens: inWhole(DECIMALS),
  coin: inWhole(18),
  loss: (value) => value.toFixed(4),
  seconds: (value) => `${value} s`,
  duration,
  rate: (value) => {
    const [whole, part] = value.toFixed(1).split(".");
    return `${grouped(whole)}.${part}`;
  },
  seats: (value) => value.join(", ") || "none",
  size: (value) => String(value.length),
  share: (value) => `${(100 * value).toFixed(1)} %`,
  short: (value) => value.slice(0, 12),
  address: (value) => `${value.slice(0, 6)}…${value.slice(-4)}`,
  time: (value) => new Date(1000 * value).toISOString().slice(0, 19).replace("T", " ") + " UTC",
  minute: (value) => new Date(1000 * value).toISOString().slice(0, 16).replace("T", " ") + " UTC",
  day: (value) => new Date(1000 * value).toISOString().slice(0, 10),
  ratio: (value) => value.toFixed(3),
};
const at = (path, whole = data) => path.reduce((value, name) => (value ?? {})[name], whole);
const show = (path, as = "count", whole = data) => {
  const value = at(path, whole);
  if (value === null || value === undefined || value === "") return el("span", {}, "–");
  const name = whole === data ? "data-path" : "data-other-path";
  const span = el("span", { [name]: JSON.stringify(path), "data-as": as });
  span.textContent = FORMATS[as](value);
  if (as === "short" || as === "address") span.title = value;
  return span;
};
const derived = (text, tag = "span") => el(tag, { "data-derived": "" }, String(text));
const isKnown = (path) => at(path) !== null && at(path) !== undefined && at(path) !== "";

// --- pieces ---

const section = (id, title, note, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), note ? el("p", { class: "note" }, note) : null, children);
const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
const small = (...value) => el("small", {}, value);
const bond = (path) => [show([...path, "bond_wei"], "tokens"),
  el("div", { class: "when" }, show([...path, "retained_wei"], "tokens"), " of it pay")];
const textOf = (item) => Array.isArray(item) ? item.map(textOf).join("") : item?.textContent ?? item;
// On a narrow screen a row is a card, whose cells have their column's name; the roles outlive that.
const table = (caption, names, rows) =>
  el("div", { class: "scroll" }, el("table", { class: "list", role: "table", "aria-label": caption },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, names.map(([name, kind]) =>
      el("th", { scope: "col", role: "columnheader", class: kind }, name)))),
    el("tbody", { role: "rowgroup" }, rows.map((cells) => el("tr", { role: "row" }, cells.map((cell, i) =>
      el("td", { class: names[i][1], role: "cell", "data-label": textOf(names[i][0]) }, cell)))))));
const N = "number";
const MOST = 500; // of a long list the newest are drawn, so that a browser bears ten thousand rounds
const newest = (list, make) => {
  const first = Math.max(0, list.length - MOST);
  return list.slice(first).map((item, k) => make(item, first + k));
};
const cut = (path) => at(path).length <= MOST ? null : el("p", { class: "note" }, "The newest ",
  derived(MOST), " of ", show(path, "size"), " are shown; the page’s source has them all.");
const swatch = (state) =>
  el("span", { class: `cell s-${state}`, "aria-hidden": "true" }, data.grid.states[state][0]);

// --- where to look on ---

const isServed = root === "/";
const href = (path) => root ? { href: root + (isServed ? path : `${path}/index.html`) } : {};
const linkTo = (path, ...children) => root ? el("a", href(path), children) : children;
const icon = (isDone) => svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, class: "icon", "aria-hidden": "true" },
  isDone ? svg("path", { d: "M3 8.5l3.5 3.5L13 5" }) : [svg("rect", { x: 5.5, y: 5.5, width: 8, height: 8, rx: 1.5 }),
    svg("path", { d: "M10.5 3.5v-.5a.5.5 0 0 0-.5-.5H3a.5.5 0 0 0-.5.5v7a.5.5 0 0 0 .5.5h.5" })]);
const copier = (text) => el("button", { class: "copy", type: "button", "data-copy": text,
  "aria-label": `Copy ${text}`, title: "Copy" }, icon(false));
const looked = (kind, value) => data.explorer
  ? el("a", { class: "out", href: `${data.explorer}/${kind}/${value}`, rel: "noopener noreferrer",
    "aria-label": `${value} in the chain’s explorer` }, "↗") : null;
// Something long that is compared and copied, never read: its beginning, and what copies the whole.
const hash = (path, kind = null, as = "short") => !isKnown(path) ? "–"
  : el("span", { class: "mono nobreak" }, show(path, as), copier(at(path)), kind ? looked(kind, at(path)) : null);
const command = (path) => el("span", { class: "command" }, el("code", {}, show(path, "text")), copier(at(path)));
const until = (time, before = " (in ", after = ")") => live
  ? el("span", { class: "until", "data-derived": "", "data-until": time, "data-before": before,
    "data-after": after, "aria-hidden": "true" }) : null;

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page that came without https has no clipboard
    const area = el("textarea", { class: "away", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.classList.add("copied");
  button.replaceChildren(icon(true));
  setTimeout(() => {
    button.classList.remove("copied");
    button.replaceChildren(icon(false));
  }, 1200);
}
addEventListener("click", (event) => {
  const button = event.target.closest?.("button.copy");
  if (button) copy(button);
});

// --- people ---

const memberOf = (path, account = "account") => linkTo(`member/${at([...path, account])}`,
  show([...path, account === "account" ? "name" : `${account}_name`], "text"));
const who = (path) => isKnown([...path, "account"]) ? el("span", { class: "nobreak" }, memberOf(path),
  copier(at([...path, "account"])), looked("address", at([...path, "account"]))) : "nobody";
// Whose short address is its name has that once.
const address = (path) => hash(path, "address", "address");

function liveness() {
  return live ? el("span", { class: "pill live", id: "liveness", role: "status" }, "live") : null;
}

function toNetwork() {
  return root ? el("a", isServed ? { href: "/network" } : { href: `${root}index.html` }, "The network") : null;
}

function navigation(entries) {
  return el("nav", { "aria-label": "On this page" }, el("ul", {}, entries.map(([id, name]) =>
    el("li", {}, el("a", { href: `#${id}` }, name)))));
}

function tick() {
  const now = (data.job?.now ?? data.now) + (Date.now() - seenAt) / 1000;
  document.querySelectorAll("[data-until]").forEach((node) => {
    const left = Number(node.dataset.until) - now;
    node.textContent = left > 0 ? node.dataset.before + duration(left) + node.dataset.after : "";
  });
}

