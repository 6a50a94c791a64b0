// --- curves: uPlot draws, the readout below says the numbers of where the pointer is ---

const charts = new Map(); // by name: the drawing, and what outlives a new one: zoom and pointer
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const placesFor = (step) => { // so many that a quarter is no fifth
  const rough = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const isWhole = (places) => Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) < 1e-6;
  return Math.min(15, [0, 1].map((more) => rough + more).find(isWhole) ?? rough + 1);
};
const WHOLE = [1, 2, 5].flatMap((n) => Array.from({ length: 12 }, (_, k) => n * 10 ** k)).sort((a, b) => a - b);
const numbersOf = (_, values, __, ___, step) => values.map((value) => value >= 1e6 && step >= 1e5
  ? `${value / 1e6}M` : value >= 1e4 && step >= 1e3 ? `${value / 1e3}k` : value.toFixed(placesFor(step)));

const DAY = 86400;
const daysOf = (_, values) => values.map((value) => FORMATS.day(DAY * value));

function bounds(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  // So much wider than a number's last bit that the axis's steps move it.
  const least = 1e-9 * Math.max(Math.abs(low), Math.abs(high));
  const room = low === high ? 0.08 * (Math.abs(high) || 1) : Math.max(0.08 * (high - low), least);
  return [low - room, high + room];
}

// A line, or points of a kind: "certified" filled, "own" hollow, "bars".
function seriesOf({ kind, values }) {
  const ink = colour(kind === "own" ? "ink" : kind === "other" ? "other" : "accent");
  const line = { spanGaps: true, stroke: ink, width: kind === "other" ? 2 : 2, points: { show: false } };
  if (kind === "other") return { ...line, dash: [6, 4], points: { show: values.length < 40, size: 6, stroke: ink, fill: ink } };
  if (kind === "bars") return { ...line, width: 0, fill: ink, paths: uPlot.paths.bars({ size: [0.7, 48], align: 0 }) };
  if (kind === "line") return line;
  const hollow = kind === "own";
  return { ...line, paths: () => null, points: { show: true, size: hollow ? 9 : 8, width: 1.5, stroke: ink, fill: hollow ? colour("card") : ink } };
}

// Draws `lines` over `xs` in `place`; `read` makes what the readout says of one of them.
function chart(name, place, { xs, lines, height, label, read, options = {} }) {
  const kept = charts.get(name) || {};
  kept.plot?.destroy();
  const readout = el("p", { class: "readout", "aria-live": "polite" });
  const box = el("div", { class: "chart", tabindex: "0", role: "group", "aria-label": `${label}; the arrow keys move along it` });
  place.replaceChildren(box, readout);
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 },
    font: "12px system-ui, sans-serif" };
  const known = lines.flatMap((line) => line.values).filter((value) => value !== null && value !== undefined);
  const room = options.beside || (xs.length === 1 ? 0.5 : 0); // beside the first and the last
  const starts = lines.some((line) => line.kind === "bars") ? [0] : [];
  const tell = (index) => {
    readout.replaceChildren(...[read(index)].flat(Infinity).filter((child) => child !== null && child !== undefined));
  };
  const plot = new uPlot({
    width: Math.max(120, box.clientWidth), height,
    legend: { show: false },
    cursor: { y: false, drag: { x: !room, y: false }, ...(options.sync ? { sync: { key: options.sync } } : {}) },
    scales: { x: { time: false, ...(room ? { range: () => [xs[0] - room, xs[xs.length - 1] + room] } : {}) }, y: { range: () => options.range || bounds([...known, ...starts]) } },
    axes: [{ ...axis, values: options.days ? daysOf : numbersOf, ...(options.whole ? { incrs: WHOLE } : {}), show: !options.small,
      space: options.days ? 90 : 60 },
      { ...axis, values: numbersOf, size: options.small ? 34 : 52, space: options.small ? 24 : 40 }],
    series: [{}, ...lines.map(seriesOf)],
    hooks: {
      drawClear: [(u) => options.shade?.(u)],
      setCursor: [(u) => {
        if (u.cursor.idx === null || u.cursor.idx === undefined) return;
        kept.index = u.cursor.idx; // where its reader was: a new drawing is read there, too
        tell(kept.index);
      }],
      setScale: [(u, key) => {
        if (key !== "x" || !u.scales.x.max) return;
        if (room) return;
        const whole = u.scales.x.min <= xs[0] && u.scales.x.max >= xs[xs.length - 1];
        kept.zoom = whole ? null : [u.scales.x.min, u.scales.x.max];
        options.zoomed?.(!whole);
      }],
    },
  }, [xs, ...lines.map((line) => line.values)], box);
  plot.root.querySelectorAll("canvas").forEach((canvas) => canvas.setAttribute("aria-hidden", "true"));
  Object.assign(kept, { plot, xs });
  charts.set(name, kept);
  box.addEventListener("keydown", (event) => moveAlong(event, kept));
  if (kept.zoom) plot.setScale("x", { min: kept.zoom[0], max: kept.zoom[1] });
  tell(Math.min(kept.index ?? options.first ?? Infinity, xs.length - 1));
  return kept;
}

// What another axis or another line makes meaningless: where its reader was.
function forget(name) {
  charts.get(name)?.plot.destroy();
  charts.delete(name);
}

function moveAlong(event, { plot, xs, index }) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const next = Math.min(xs.length - 1, Math.max(0, (index ?? xs.length - 1) + steps[event.key]));
  const [width, height] = [plot.over.clientWidth, plot.over.clientHeight];
  plot.setCursor({ left: Math.min(width - 0.5, Math.max(0, plot.valToPos(xs[next], "x"))), top: height / 2 });
}

// Half of what is seen around its middle, or all of it.
function zoomTo(name, whole) {
  const { plot, xs, index } = charts.get(name);
  const [low, high] = [plot.scales.x.min, plot.scales.x.max];
  const middle = Math.min(high, Math.max(low, xs[index] ?? (low + high) / 2)), quarter = (high - low) / 4;
  plot.setScale("x", whole ? { min: xs[0], max: xs[xs.length - 1] } : { min: middle - quarter, max: middle + quarter });
}

// One of several, kept from drawing to drawing.
const picked = { axis: "rounds", seats: "segments", days: "tokens", other: "" };
const picker = (name, title, choices, redraw) => el("fieldset", { class: "picker" }, el("legend", {}, title),
  choices.map(([value, text]) => {
    const input = el("input", { type: "radio", name, value, id: `${name}-${value}`, ...(picked[name] === value ? { checked: "" } : {}) });
    input.addEventListener("change", () => { picked[name] = value; redraw(); });
    return el("label", { for: `${name}-${value}` }, input, text);
  }));
const button = (text, title, act) => {
  const made = el("button", { type: "button", class: "tool", title, "aria-label": title }, text);
  made.addEventListener("click", act);
  return made;
};

// --- a job's losses ---

const AXES = [["rounds", "rounds"], ["tokens", "tokens"], ["hours", "hours"]];
const along = (whole, i) => {
  const point = whole.progress[i] || whole.progress[whole.progress.length - 1];
  return { rounds: whole.curve[i].merged, tokens: point.tokens, hours: point.seconds / 3600 }[picked.axis];
};
const lossesOf = (whole) => whole.curve.map((item) => item.certified ?? item.own);

function lossSection() {
  const rows = newest(data.curve, (item, i) => [show(["curve", i, "merged"]), show(["curve", i, "certified"], "loss"),
    show(["curve", i, "own"], "loss"), show(["progress", i, "tokens"]), item.disputed ? "mismatch" : ""]);
  return section("loss", "Held-out loss",
    "Nats a token on text that is not trained on. A committee certifies a model’s with the next round.",
    el("div", { class: "tools" }, picker("axis", "By", AXES, () => { forget("loss"); drawCurve(); }), comparison(),
      el("span", { class: "zoom" }, button("+", "Closer", () => zoomTo("loss", false)), button("whole", "The whole curve", () => zoomTo("loss", true)))),
    el("div", { id: "curve" }),
    el("p", { class: "legend" }, el("span", { class: "key" }, mark("certified"), "certified"),
      el("span", { class: "key" }, mark("own"), "computed here"),
      other ? el("span", { class: "key" }, mark("other"), "job ", show(["job", "job"], "count", other)) : null),
    besides(),
    el("details", { "data-keep": "loss" }, el("summary", {}, "As a table"),
      cut(["curve"]), table("Held-out loss by rounds merged",
        [["Rounds merged", N], ["Certified", N], ["Computed here", N], ["Tokens", N], ["", ""]], rows)));
}

function mark(kind) {
  const shape = kind === "other" ? svg("path", { d: "M0 7h14", class: "other" })
    : svg("circle", { cx: 7, cy: 7, r: 4.5, class: kind });
  return svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, shape);
}

function drawCurve() {
  const place = document.getElementById("curve");
  if (!place) return;
  if (!data.curve.some(lossField)) {
    place.replaceChildren(el("p", {}, "No loss is known yet. The first is certified with the round after it."));
    return;
  }
  const both = [[data, lossesOf(data)], ...(other ? [[other, lossesOf(other)]] : [])];
  const points = both.flatMap(([whole, values]) => values.map((value, i) => ({ whole, i, value, x: along(whole, i) })));
  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  const of = (whole, value) => {
    const known = new Map(points.filter((point) => point.whole === whole).map((point) => [point.x, value(point.i)]));
    return xs.map((x) => known.get(x) ?? null);
  };
  const lines = [{ kind: "line", values: of(data, (i) => lossesOf(data)[i]) },
    { kind: "own", values: of(data, (i) => data.curve[i].own !== data.curve[i].certified ? data.curve[i].own : null) },
    { kind: "certified", values: of(data, (i) => data.curve[i].certified) }];
  if (other) lines.push({ kind: "other", values: of(other, (i) => lossesOf(other)[i]) });
  const read = (index) => both.map(([whole]) => {
    const point = points.filter((item) => item.whole === whole && item.x === xs[index]).pop();
    return point ? el("span", { class: "reading" }, readLoss(whole, point.i)) : null;
  });
  chart("loss", place, { xs, lines, height: 260, label: "Held-out loss", read,
    options: { whole: picked.axis !== "hours", first: lines[0].values.findLastIndex((value) => value !== null), shade: shadeUnsafe, zoomed: (is) => document.getElementById("loss")?.classList.toggle("zoomed", is) } });
}

function readLoss(whole, i) {
  const path = ["curve", i], item = whole.curve[i];
  const loss = (field, text) => item[field] === null ? null : [" ", show([...path, field], "loss", whole), ` ${text}`];
  return [whole === data ? null : ["job ", show(["job", "job"], "count", whole), ", "], "after ", show([...path, "merged"], "count", whole), " rounds:",
    lossField(item) ? [loss("certified", "certified"), item.own !== item.certified ? loss("own", "computed here") : null] : " not known yet",
    whole.progress[i] ? [" · ", show(["progress", i, "tokens"], "count", whole), " tokens · ", show(["progress", i, "seconds"], "duration", whole)] : null];
}

// Rounds whose merge bears less than was slashed in it.
function shadeUnsafe(u) {
  if (picked.axis !== "rounds") return;
  u.ctx.save();
  u.ctx.globalAlpha = 0.15;
  u.ctx.fillStyle = colour("slashed");
  data.unsafe.rounds.forEach((round) => {
    const [from, to] = [round, round + 1].map((x) => u.valToPos(x, "x", true));
    u.ctx.fillRect(from, u.bbox.top, Math.max(2, to - from), u.bbox.height);
  });
  u.ctx.restore();
}

// --- what a job's completions are worth ---

function rewardSection() {
  if (!hasTask()) return null;
  const rows = newest(data.curve, (item, i) => [show(["curve", i, "merged"]), show(["curve", i, "reward"], "share"),
    show(["curve", i, "length"], "rate"), show(["curve", i, "spread"], "share"), show(["curve", i, "held_out_reward"], "share")]);
  return section("rewards", "Rewards",
    "As shares of what an answer may be worth. Whoever made this page counted them, by the tokens that updates end with.",
    el("div", { id: "reward-curve" }),
    el("p", { class: "legend" }, el("span", { class: "key" }, mark("certified"), "of what a round sampled"),
      el("span", { class: "key" }, mark("own"), "of the model, on prompts that were kept back")),
    el("details", { "data-keep": "rewards" }, el("summary", {}, "As a table"), cut(["curve"]), table("Rewards by rounds merged",
      [["Rounds merged", N], ["Mean reward", N], ["Tokens of an answer", N], ["Groups with an advantage", N], ["Held-out reward", N]], rows)));
}

function drawRewards() {
  const place = document.getElementById("reward-curve");
  if (!place) return;
  if (!data.curve.some((item) => hasReward(item) || hasHeldOut(item))) {
    place.replaceChildren(el("p", {}, "No reward is known here yet."));
    return;
  }
  const of = (field) => data.curve.map((item) => item[field]);
  const lines = [{ kind: "line", values: of("reward") }, { kind: "certified", values: of("reward") }, { kind: "own", values: of("held_out_reward") }];
  const newestKnown = data.curve.findLastIndex(hasReward);
  chart("rewards", place, { xs: of("merged"), lines, height: 220, label: "Mean reward by rounds merged", read: readReward,
    options: { whole: true, first: newestKnown < 0 ? Infinity : newestKnown } });
}

function readReward(i) {
  const path = ["curve", i], item = data.curve[i];
  const part = (field, as, ...text) => item[field] === null ? null : [" · ", show([...path, field], as), text];
  return ["after ", show([...path, "merged"]), " rounds:", item.reward === null ? " nothing counted" : [" ", show([...path, "reward"], "share"), " of the reward"],
    part("length", "rate", " tokens"), part("spread", "share", " of groups with an advantage"), part("held_out_reward", "share", " held out")];
}

// --- two jobs compared ---

let jobs = []; // of the network, once its document came: numbers and names

function comparison() {
  if (!jobs.length) return null;
  const select = el("select", { id: "other", "aria-label": "Compare with another job" },
    el("option", { value: "" }, "Compare with …"),
    jobs.map(({ job, name }) => el("option", { value: job, ...(String(job) === picked.other ? { selected: "" } : {}) },
      name ? `job ${job}: ${name}` : `job ${job}`)));
  select.addEventListener("change", () => { picked.other = select.value; compare(); });
  return select;
}

const documentOf = (path) => isServed ? `/${path}document.json` : `${root}${path}document.json`;

async function compare() {
  const wanted = picked.other;
  other = null;
  if (wanted) {
    const answer = await fetch(documentOf(`job/${wanted}/`), { cache: "no-cache" }).catch(() => null);
    if (picked.other !== wanted) return;
    if (answer?.ok) other = await answer.json();
  }
  forget("loss");
  draw();
}

async function learnJobs() {
  const answer = await fetch(documentOf(""), { cache: "no-cache" }).catch(() => null);
  if (!answer?.ok) return; // a file that is opened without a server has nobody to ask
  const known = (await answer.json()).jobs.filter((item) => item.job !== data.job.job);
  if (known.length === jobs.length) return;
  jobs = known;
  draw();
}

function besides() {
  if (!other) return null;
  const line = (name, path, as) => [name, show(path, as), show(path, as, other)];
  const loss = (whole) => {
    const last = whole.curve.map((item, i) => [lossField(item), i]).filter(([field]) => field).pop();
    return last ? show(["curve", last[1], last[0]], "loss", whole) : "–";
  };
  const title = (whole) => ["Job ", show(["job", "job"], "count", whole)];
  return table("Both jobs", [["", ""], [title(data), N], [title(other), N]], [
    line("Name", ["what", "name"], "text"), line("Parameters", ["what", "parameters"], "count"),
    ["Held-out loss", loss(data), loss(other)], line("Rounds settled", ["job", "settled_rounds"], "count"),
    line("Tokens trained", ["speed", "tokens"], "count"), line("Tokens a second", ["speed", "tokens_per_second"], "rate"),
    line("A million tokens", ["price", "earned_million_wei"], "tokens"), line("Training’s share", ["price", "training_share"], "share")]);
}

// --- one small chart a seat ---

const MEASURES = [["segments", "segments"], ["paid_wei", "pay"], ["seconds", "seconds to the commitment"], ["distance", "distance to the merge"]];
const READ_AS = { segments: ["count", () => [" of ", show(["job", "segments"]), " segments"]], paid_wei: ["tokens", () => " tokens"],
  seconds: ["duration", () => null], distance: ["ratio", () => " times the merge’s length"] };
const isMeasured = () => data.seats.some((seat) => seat.rounds.some((round) => round.distance !== null));
const SEATS = 32; // drawn at most: each is a canvas

function seatsSection() {
  const cards = data.seats.slice(0, SEATS).map((seat, i) => {
    const path = ["seats", i];
    return el("div", { class: "seat" },
      el("h3", {}, "Seat ", show([...path, "seat"], "text"), isKnown([...path, "account"]) ? [": ", memberOf(path)] : ": nobody"),
      el("p", { class: "note" }, show([...path, "tokens"]), " tokens, ", show([...path, "paid_wei"], "tokens"), " paid, at work ",
        show([...path, "utilisation"], "share"), " of the time"),
      el("div", { class: "small", id: `seat-${i}` }));
  });
  return section("seats", "Seats", "By round what each did. At work is the time from a round’s opening to the seat’s commitment.",
    isMeasured() ? el("p", { class: "note" }, "The distance to the merge is between a seat’s update and the merged one, in lengths of the merged one: ",
      "honest ones are alike. It was measured by whoever made this page.") : null,
    el("div", { class: "tools" }, picker("seats", "Show", isMeasured() ? MEASURES : MEASURES.slice(0, 3), drawSeats)),
    el("div", { class: "seats-grid" }, cards),
    data.seats.length > SEATS ? el("p", { class: "note" }, "The first ", derived(SEATS), " of ", show(["seats"], "size"), " seats are drawn.") : null);
}

function drawSeats() {
  const measure = picked.seats;
  const value = (round) => measure === "paid_wei" ? Number(BigInt(round.paid_wei)) / 10 ** DECIMALS : round[measure];
  const most = Math.max(0, ...data.seats.flatMap((seat) => seat.rounds.map(value)).filter((v) => v !== null));
  data.seats.slice(0, SEATS).forEach((seat, i) => {
    const place = document.getElementById(`seat-${i}`);
    if (!place) return;
    if (!seat.rounds.length) {
      place.replaceChildren(el("p", { class: "note" }, "No settled round yet."));
      return;
    }
    const [as, unit] = READ_AS[measure];
    const read = (index) => ["round ", show(["seats", i, "rounds", index, "round"], "text"), ": ",
      show(["seats", i, "rounds", index, measure], as), isKnown(["seats", i, "rounds", index, measure]) ? unit() : null];
    const values = seat.rounds.map(value), newestKnown = values.findLastIndex((known) => known !== null);
    chart(`seat-${i}`, place, { xs: seat.rounds.map((round) => round.round), lines: [{ kind: "bars", values }],
      height: 84, label: `Seat ${seat.seat} by round`, read, options: { first: newestKnown < 0 ? Infinity : newestKnown, small: true, beside: 0.6, sync: "seats", range: [0, (most || 1) * 1.1] } });
  });
}

// --- a network's days ---

const DAYS = [["tokens", "tokens trained"], ["paid_wei", "paid"], ["slashed_wei", "slashed"]];

function daysSection() {
  if (!data.days.length) return null;
  const rows = newest(data.days, (_, i) => [show(["days", i, "day"], "day"), show(["days", i, "rounds"]), show(["days", i, "tokens"]),
    show(["days", i, "paid_wei"], "tokens"), show(["days", i, "slashed_wei"], "tokens")]).reverse();
  return section("days", "By day", "What each day of the chain’s clock brought, in UTC.",
    el("div", { class: "tools" }, picker("days", "Show", DAYS, drawDays)), el("div", { id: "day-chart" }),
    el("details", { "data-keep": "days" }, el("summary", {}, "As a table"), cut(["days"]), table("By day, the newest first",
      [["Day", "short"], ["Rounds settled", N], ["Tokens trained", N], ["Paid", N], ["Slashed", N]], rows)));
}

function drawDays() {
  const place = document.getElementById("day-chart"), measure = picked.days;
  if (!place) return;
  const value = (day) => measure.endsWith("_wei") ? Number(BigInt(day[measure])) / 10 ** DECIMALS : day[measure];
  const read = (i) => [show(["days", i, "day"], "day"), ": ", show(["days", i, measure], measure === "tokens" ? "count" : "tokens"),
    measure === "tokens" ? " tokens trained in " : measure === "paid_wei" ? " tokens paid; rounds settled: " : " tokens slashed; rounds settled: ",
    show(["days", i, "rounds"]), measure === "tokens" ? " rounds" : null];
  chart("days", place, { xs: data.days.map((day) => day.day / DAY), lines: [{ kind: "bars", values: data.days.map(value) }], height: 200,
    label: "By day", read, options: { days: true, whole: true, beside: 0.6 } });
}

