// --- drawing ---

const HEADS = { job: jobHead, member: memberHead, network: networkHead };
// On a wide screen a job's page has two columns and what is as wide as both below them; on a narrow
// one they follow each other.
const COLUMNS = {
  job: [[rewardSection, lossSection, seatsSection, gridSection, replaySection, measuredSection],
    [whatSection, priceSection, moneySection, membersSection], [roundsSection, gamesSection, logSection]],
  member: [[memberSums, memberJobs, logSection]],
  network: [[daysSection, networkJobs, networkMembers]],
};

// What of a page is open, has the focus, or is scrolled, by a name that outlives a new drawing.
const placeOf = (node) => JSON.stringify([node.closest("section")?.id, node.closest("[data-keep]")?.dataset.keep,
  node.closest("[id]")?.id, node.tagName, node.id, node.getAttribute("href"), { ...node.dataset }, node.closest("table, ol")?.ariaLabel]);
const scrollers = () => [...document.querySelectorAll(".scroll, ol.log")];
const scrollerOf = (node) => JSON.stringify([node.tagName, (node.querySelector("table") || node).ariaLabel]);

function draw() {
  const kept = new Map([...document.querySelectorAll("details[data-keep]")].map((d) => [d.dataset.keep, d.open]));
  const moved = new Map(scrollers().map((node) => [scrollerOf(node), [node.scrollLeft, node.scrollTop]]));
  const focused = document.activeElement, place = placeOf(focused);
  document.getElementById("head").replaceChildren(...HEADS[data.kind]().flat(Infinity).filter(Boolean));
  const content = document.getElementById("content");
  content.className = COLUMNS[data.kind].length > 1 ? "columns" : "";
  content.replaceChildren(...COLUMNS[data.kind].map((column) =>
    el("div", { class: "column" }, column.map((make) => make()))));
  document.querySelectorAll("details[data-keep]").forEach((d) => {
    if (kept.has(d.dataset.keep)) d.open = kept.get(d.dataset.keep);
  });
  scrollers().forEach((node) => [node.scrollLeft, node.scrollTop] = moved.get(scrollerOf(node)) || [0, 0]);
  drawCharts();
  const grid = document.querySelector("#grid .scroll");
  if (grid && !moved.size) grid.scrollLeft = grid.scrollWidth; // the newest rounds, at first
  if (data.kind === "job") {
    drawChoice();
    drawMoment();
  }
  tick();
  if (focused.isConnected) return;
  const same = [...document.querySelectorAll(focused.tagName)].find((node) => placeOf(node) === place);
  same?.focus({ preventScroll: true });
}

function drawCharts() {
  if (data.kind === "job") {
    drawRewards();
    drawCurve();
    drawSeats();
  } else if (data.kind === "network") {
    drawDays();
  }
}

function tellLiveness(text) {
  const state = document.getElementById("liveness");
  state.classList.toggle("live", text === "live");
  if (state.textContent !== text) state.textContent = text;
}

// Every block makes another document, by its clock. Whose chain stands still is answered all the same.
function sinceNews() {
  const minutes = Math.floor((Date.now() - seenAt) / 60000);
  return minutes < QUIET_MINUTES ? "live" : `no new block for ${minutes} minutes`;
}

// As `atoll/dashboard/changes.py` says it.
function changed(before, change) {
  if ("is" in change) return change.is;
  const after = Array.isArray(before) ? before.slice(0, change.length) : { ...before };
  for (const [name, part] of Object.entries(change.set)) after[name] = changed(after[name], part);
  return after;
}

let tag = ""; // of the document that lies in the page, as the dashboard names it

async function read() {
  const answer = await fetch(tag ? `${live}?since=${tag}` : live, { cache: "no-cache" });
  if (!answer.ok) throw new Error(String(answer.status));
  const text = await answer.text(), etag = (answer.headers.get("ETag") ?? "").replace(/^(W\/)?"|"$/g, "");
  if (!(answer.headers.get("Content-Type") ?? "").includes("changes+json")) return [text, etag];
  const change = JSON.parse(text), isNone = change.set && !Object.keys(change.set).length;
  return [isNone ? source.textContent : JSON.stringify(changed(data, change)), etag];
}

async function look() {
  const silent = () => tellLiveness("not live: the dashboard does not answer");
  const late = setTimeout(silent, PATIENCE_MS);
  try {
    const [text, etag] = await read(), isNew = text !== source.textContent;
    const isHeld = isNew && !getSelection().isCollapsed;
    if (isNew && !isHeld) {
      source.textContent = text;
      [data, seenAt] = [JSON.parse(text), Date.now()];
      draw();
    }
    if (isServed && !isHeld) tag = etag;
    tellLiveness(isHeld ? "waits while text is marked" : sinceNews());
  } catch {
    silent();
  }
  clearTimeout(late);
  setTimeout(look, isServed ? 2000 : 5000); // what is exported changes seldom
}

draw();
let width = innerWidth;
addEventListener("resize", () => { // a telephone resizes as its address bar goes, too
  if (innerWidth === width) return;
  width = innerWidth;
  drawCharts();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
if (live) {
  setTimeout(look, 2000);
  setInterval(tick, 1000);
}
if (root && data.kind === "job" && location.protocol !== "file:") {
  learnJobs();
  addEventListener("visibilitychange", () => { if (!document.hidden) learnJobs(); }, true);
}
document.documentElement.dataset.drawn = "yes";
