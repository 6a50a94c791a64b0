// --- the grid ---

function gridSection() {
  const { first, rows, seats, order } = data.grid;
  const head = el("tr", {}, el("th", { class: "corner", scope: "col" }, "seat"), rows.map((_, row) =>
    el("th", { scope: "col" }, show(["rounds", first + row, "round"], "text"))));
  const body = Array.from({ length: seats }, (_, seat) => el("tr", {},
    el("th", { scope: "row" }, derived(seat)), rows.map((_, row) => gridCell(row, seat))));
  const grid = el("table", { class: "grid seats", role: "grid", "aria-label": "What became of each seat in each round",
    "aria-describedby": "grid-help" }, el("thead", {}, head), el("tbody", {}, body));
  grid.addEventListener("keydown", moveInGrid);
  grid.addEventListener("focusin", (event) => choose(event.target));
  grid.addEventListener("mouseover", (event) => choose(event.target));
  const used = new Set(rows.flat().map((cell) => cell.state));
  const legend = order.filter((state) => used.has(state)).map((state) =>
    el("li", {}, swatch(state), show(["grid", "states", state, 1], "text")));
  return section("grid", "Seats and rounds", null,
    el("p", { class: "note", id: "grid-help" },
      "A column is a round. Point at a square, or move with the arrow keys, to read what happened."),
    rows.length ? el("div", { class: "scroll" }, grid) : el("p", {}, "No round has opened yet."),
    first ? el("p", { class: "note" }, "Earlier rounds than ", show(["grid", "first"]), " are not shown.") : null,
    el("div", { class: "why", id: "why", "aria-live": "polite" }), el("ul", { class: "legend" }, legend));
}

function gridCell(row, seat) {
  const cell = data.grid.rows[row][seat];
  const [letter, meaning] = data.grid.states[cell.state];
  const round = data.rounds[data.grid.first + row].round;
  return el("td", { role: "gridcell", class: `cell s-${cell.state}`, "data-row": row, "data-seat": seat,
    tabindex: "-1", "aria-label": `round ${round}, seat ${seat}: ${meaning}` }, letter);
}

const cellAt = (row, seat) => document.querySelector(`td[data-row="${row}"][data-seat="${seat}"]`);

function moveInGrid(event) {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
    Home: [-Infinity, 0], End: [Infinity, 0], PageUp: [0, -Infinity], PageDown: [0, Infinity] };
  const step = steps[event.key];
  if (!step || !chosen) return;
  event.preventDefault();
  const within = (value, most) => Math.min(most, Math.max(0, value));
  const next = cellAt(within(chosen[0] + step[0], data.grid.rows.length - 1),
    within(chosen[1] + step[1], data.grid.seats - 1));
  next.focus();
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function choose(node) {
  if (!node.dataset || node.dataset.row === undefined) return;
  chosen = [Number(node.dataset.row), Number(node.dataset.seat)];
  drawChoice();
}

function drawChoice() {
  if (!data.grid.rows.length) return;
  if (!chosen || !cellAt(...chosen)) chosen = [data.grid.rows.length - 1, 0];
  document.querySelectorAll("td.chosen").forEach((cell) => { cell.tabIndex = -1; cell.classList.remove("chosen"); });
  const node = cellAt(...chosen);
  node.tabIndex = 0;
  node.classList.add("chosen");
  const [row, seat] = chosen, path = ["grid", "rows", row, seat];
  document.getElementById("why").replaceChildren(
    el("h3", {}, "Round ", show(["rounds", data.grid.first + row, "round"], "text"), ", seat ", derived(seat)),
    el("p", {}, show([...path, "text"], "text")),
    el("ul", {}, data.grid.rows[row][seat].evidence.map((_, i) => evidence([...path, "evidence", i]))));
}

function evidence(path) {
  const item = at(path);
  return el("li", {}, show([...path, "text"], "text"), ": ", item.cid !== undefined
    ? hash([...path, "cid"])
    : [" block ", show([...path, "block"], "text"), ", log ", show([...path, "log"], "text"), transaction(path)]);
}

// --- the replay ---

function replaySection() {
  const lines = data.log.lines;
  if (!lines.length) return null;
  const slider = el("input", { type: "range", id: "moment", min: 0, max: lines.length - 1, step: 1,
    "aria-label": "A moment of the job, from its first event to its newest" });
  slider.addEventListener("input", () => {
    moment = Number(slider.value) === data.log.lines.length - 1 ? null : Number(slider.value);
    drawMoment();
  });
  return section("replay", "Replay", null,
    el("p", { class: "note" }, "Move the slider, or press the arrow keys on it, to see how the job stood after ",
      "each event. Rounds that had not begun are faint in the squares above."),
    slider, el("div", { class: "why", id: "then", "aria-live": "polite" }));
}

function drawMoment() {
  const slider = document.getElementById("moment");
  if (!slider) return;
  const index = Math.min(moment ?? Infinity, data.log.lines.length - 1), line = data.log.lines[index];
  slider.value = index;
  const path = ["log", "lines", index], then = [...path, "then"];
  slider.setAttribute("aria-valuetext", line.text);
  const amounts = [["Paid", "paid_wei"], ["Burnt", "burnt_wei"], ["Refunded", "refunded_wei"],
    ["Taken from bonds", "taken_wei"]];
  document.getElementById("then").replaceChildren(
    el("h3", {}, show([...path, "text"], "text")),
    el("p", { class: "when" }, show([...path, "time"], "time"), ", block ", show([...path, "block"], "text")),
    el("dl", { class: "split" }, fact("Round", show([...then, "round"], "text")),
      fact("Phase", show([...then, "phase"], "text")), fact("Settled", show([...then, "settled"])),
      fact("Open games", show([...then, "games"])),
      amounts.map(([name, field]) => fact(name, show([...then, field], "tokens")))));
  const newest = moment === null ? Infinity : line.then.round ?? -1;
  document.querySelectorAll("table.seats td.cell").forEach((cell) => {
    cell.classList.toggle("later", data.rounds[data.grid.first + Number(cell.dataset.row)].round > newest);
  });
}

// --- rounds ---

function roundsSection() {
  const names = [["Round", N], ["Stands at", ""], ["Train, reveal, merge", ""], ["Available", ""], ["Left out", ""],
    ["Audited", ""], ["Paid", ""], ["Slashed", ""], ["Cost", N], ["Model", ""]];
  const tainted = new Set(data.signs.tainted.map((item) => item.round)), still = new Set(data.signs.moved_nothing);
  const rows = newest(data.rounds, (round, i) => {
    const path = ["rounds", i];
    return [show([...path, "round"], "text"),
      [show([...path, "phase"], "text"), round.is_unsafe ? ", unsafe" : null,
        tainted.has(round.round) ? ", tainted" : null, still.has(round.round) ? ", moved nothing" : null,
        round.until ? el("div", { class: "when" }, "until ", show([...path, "until"], "time")) : null,
        round.voids ? el("div", { class: "when" }, "void before: ", show([...path, "voids"])) : null],
      phases(round, path), show([...path, "available"], "seats"), show([...path, "excluded"], "seats"),
      show([...path, "drawn"], "seats"), show([...path, "paid"], "seats"), show([...path, "slashed"], "seats"),
      show([...path, "cost_wei"], "tokens"),
      hash([...path, "model_digest"])];
  }).reverse();
  return section("rounds", "Rounds", "Seats by number; seconds of the chain’s clock; cost in tokens.",
    cut(["rounds"]),
    rows.length ? table("Rounds, the newest first", names, rows) : el("p", {}, "None yet."));
}

function phases(round, path) {
  const names = ["train", "reveal", "merge"], whole = names.reduce((sum, name) => sum + round.seconds[name], 0);
  let x = 0;
  const parts = names.map((name) => {
    const width = whole ? (100 * round.seconds[name]) / whole : 0;
    x += width;
    return svg("rect", { x: x - width, y: 0, width, height: 10, class: `part-${name}` });
  });
  return [names.map((name, i) => [i ? " + " : null, show([...path, "seconds", name], "seconds")]),
    svg("svg", { class: "phasebar", viewBox: "0 0 100 10", preserveAspectRatio: "none",
      "aria-hidden": "true" }, parts)];
}

// --- games ---

function gamesSection() {
  const games = newest(data.games, (game, i) => {
    const path = ["games", i];
    return el("div", { class: "game" },
      el("h3", {}, "Game ", show([...path, "game"]), ": ", show([...path, "outcome"], "text")),
      el("p", { class: "note" }, "About ", show([...path, "about"], "text"), ", round ", show([...path, "round"]),
        game.through_round === game.round ? null : [", reached through round ", show([...path, "through_round"])],
        ", seat ", show([...path, "seat"]), game.is_update_proof ? ", its update" : [", segment ", show([...path, "segment"])],
        ". ", show([...path, "challenger"], "text"), " challenged ", show([...path, "holder"], "text"), ", bond ",
        show([...path, "bond_wei"], "tokens"), " tokens.",
        game.until ? [" Who is to move loses at ", show([...path, "until"], "time"), "."] : null),
      el("details", { "data-keep": `game ${game.game}` }, el("summary", {}, "Move by move"),
        el("ol", { class: "moves" }, game.moves.map((_, k) => happened([...path, "moves", k])))));
  });
  return section("games", "Games",
    "Where two disagree about a computation the contract executes the one operation that they disagree about.",
    cut(["games"]), games.length ? games : el("p", {}, "Nobody has disputed anything."));
}

function happened(path) {
  return el("li", {}, show([...path, "text"], "text"), el("div", { class: "when" }, show([...path, "time"], "time"),
    ", block ", show([...path, "block"], "text"), ", log ", show([...path, "log"], "text"), transaction(path)));
}

function transaction(path) {
  return at([...path, "tx"]) ? [", transaction ", hash([...path, "tx"], "tx")] : null;
}

// --- money ---

const PARTS = [["paid", "paid_wei", "Paid"], ["refunded", "refunded_wei", "Refunded"],
  ["burnt", "burnt_wei", "Burnt"], ["left", "balance_wei", "Left"]];

function moneySection() {
  const names = [["Account", ""], ["Training", N], ["Signatures", N], ["Audits", N], ["Credits", N], ["In all", N]];
  const reasons = ["training", "signatures", "audits", "credits"];
  const rows = data.money.accounts.map((_, i) => {
    const path = ["money", "accounts", i];
    return [who([...path]), ...reasons.map((name) => show([...path, "paid_for_wei", name], "tokens")),
      show([...path, "paid_wei"], "tokens")];
  });
  if (rows.length) {
    rows.push(["Everybody", ...reasons.map((name) => show(["money", "paid_for_wei", name], "tokens")),
      show(["money", "paid_wei"], "tokens")]);
  }
  return section("money", "Money", "In the network’s token, from the job’s own events, counted again by the law of pay.",
    el("p", {}, "Funded ", show(["money", "funded_wei"], "tokens"), " = ", PARTS.map(([, field, name], i) =>
      [i ? " + " : null, name.toLowerCase(), " ", show(["money", field], "tokens")]),
    "; of what is paid, ", show(["money", "retained_wei"], "tokens"), " joined bonds"),
    moneyBar(),
    el("dl", { class: "split" }, PARTS.map(([kind, field, name]) => el("div", {},
      el("dt", { class: "key" }, patch(kind), name), el("dd", {}, show(["money", field], "tokens"))))),
    rows.length ? table("Who was paid what for", names, rows) : el("p", {}, "Nobody has been paid yet."),
    el("p", { class: "note" }, "Credits that nobody has claimed: ", show(["money", "credits_wei"], "tokens"), "."),
    lossesTable(), movesTable());
}

function movesTable() {
  if (!data.money.moves.length) return null;
  const rows = newest(data.money.moves, (_, i) => {
    const path = ["money", "moves", i];
    return [show([...path, "time"], "time"), show([...path, "kind"], "text"), show([...path, "wei"], "tokens"),
      hash([...path, "tx"], "tx"), show([...path, "text"], "text")];
  }).reverse();
  return el("details", { "data-keep": "moves" }, el("summary", {}, "Every amount, with its transaction"),
    cut(["money", "moves"]),
    table("Every amount that moved, the newest first",
      [["When", "short"], ["Is", ""], ["Tokens", N], ["Transaction", ""], ["What", ""]], rows));
}

function patterns(id) {
  return svg("defs", {},
    svg("pattern", { id: `${id}-refunded`, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 8, height: 8, class: "part-refunded" }), svg("line", { y2: 8, class: "hatch" })),
    svg("pattern", { id: `${id}-left`, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
      svg("rect", { width: 7, height: 7, class: "part-left" }), svg("circle", { cx: 3, cy: 3, r: 1, class: "dot" })));
}

const paint = (kind, id) => kind === "refunded" || kind === "left"
  ? { fill: `url(#${id}-${kind})` } : { class: `part-${kind}` };

function patch(kind) {
  return svg("svg", { class: "swatch", "aria-hidden": "true" }, patterns(`patch-${kind}`),
    svg("rect", { width: 16, height: 16, ...paint(kind, `patch-${kind}`) }));
}

function moneyBar() {
  const whole = BigInt(data.money.funded_wei) || 1n;
  let x = 0;
  const parts = PARTS.map(([kind, field]) => {
    const width = Number((BigInt(data.money[field]) * 100000n) / whole) / 100;
    x += width;
    return svg("rect", { x: `${(x - width) / 10}%`, width: `${width / 10}%`, y: 0, height: 28, ...paint(kind, "bar") });
  });
  return svg("svg", { class: "bar", role: "img", "aria-label": "How the escrow is divided; the amounts follow" },
    patterns("bar"), parts);
}

function lossesTable() {
  if (!data.losses.length) return null;
  const rows = newest(data.losses, (item, i) => [show(["losses", i, "name"], "text"), show(["losses", i, "round"], "text"),
    show(["losses", i, "wei"], "tokens"), [show(["losses", i, "for"], "text"), item.slashed ? " (slashed)" : null]]);
  return el("details", { "data-keep": "losses", open: "" }, el("summary", {}, "Taken from bonds"),
    cut(["losses"]), table("What was taken from bonds", [["Who", ""], ["Round", N], ["Tokens", N], ["For", ""]], rows));
}

// --- members ---

function membersSection() {
  const names = [["Who", ""], ["Role", ""], ["Rounds", ""], ["Bond", N], ["Paid", N],
    ["Can claim", N], ["Lost", N]];
  const rows = data.members.map((member, i) => {
    const path = ["members", i];
    return [[who(path), member.gateway ? el("div", { class: "when mono" }, show([...path, "gateway"], "text")) : null],
      [show([...path, "role"], "text"), " ", show([...path, "index"], "text"),
        member.slashed ? ", slashed" : member.ready ? null : ", not ready"], ["from ", show([...path, "start"], "text"),
        member.to === null ? null : [", gone from ", show([...path, "to"], "text")]],
      bond(path), ...["paid_wei", "claimable_wei", "slashed_wei"].map((name) => show([...path, name], "tokens"))];
  });
  return section("members", "Members", "Everybody who has or had a seat or a slot, and where it serves; amounts in tokens.",
    rows.length ? table("Members", names, rows) : el("p", {}, "Nobody has joined yet."));
}

// --- what no chain knows ---

function measuredSection() {
  const m = data.measured, path = ["measured"];
  if (!m) return null;
  const facts = [
    m.utilisation ? fact("Time spent in training steps", show([...path, "utilisation", "mean"], "share")) : null,
    m.bytes ? fact("Sent by gateways", show([...path, "bytes", "uploaded"]), small("bytes")) : null,
    m.bytes ? fact("Fetched", show([...path, "bytes", "downloaded"]), small("bytes")) : null,
    m.uplink_bytes_per_parameter !== undefined ? fact("Up", show([...path, "uplink_bytes_per_parameter"], "ratio"),
      small("bytes a parameter and round")) : null,
    m.downlink_bytes_per_parameter !== undefined ? fact("Down", show([...path, "downlink_bytes_per_parameter"], "ratio"),
      small("bytes a parameter and round")) : null,
    m.audit_overhead !== undefined ? fact("Steps run again", show([...path, "audit_overhead"], "share"),
      small("of those trained")) : null,
  ];
  const gas = Object.keys(m.gas || {}).map((name) => [el("span", {}, name), show([...path, "gas", name])]);
  return section("measured", "Measured by the members", "No chain knows these; they are from the run’s report.",
    el("dl", { class: "facts" }, facts),
    gas.length ? el("details", { "data-keep": "gas" }, el("summary", {}, "Gas of the dearest transaction of each kind"),
      table("Gas", [["Transaction", ""], ["Gas", N]], gas)) : null);
}

function logSection() {
  const lines = data.log.lines.map((_, i) => happened(["log", "lines", i])).reverse();
  return section("log", "What happened", null,
    el("p", { class: "note" }, "The newest first; ", show(["log", "count"]), " in all."),
    el("ol", { class: "log", tabindex: "0", "aria-label": "What happened, the newest first" }, lines));
}

