"use strict";
// Draws the document that lies in the page. What it writes is made by `show`, which takes a path
// into the document, so that whoever reads the page can look every number up; strings go into text
// nodes and attributes only.
(() => {
  const source = document.getElementById("document");
  const live = source.dataset.live;
  let data = JSON.parse(source.textContent);
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
  const tokens = (wei) => {
    const [whole, part] = [BigInt(wei) / 10n ** 18n, (BigInt(wei) % 10n ** 18n) / 10n ** 12n];
    const fraction = part.toString().padStart(6, "0").replace(/0+$/, "");
    return grouped(whole.toString()) + (fraction ? "." + fraction : "");
  };
  const FORMATS = {
    text: (value) => String(value),
    count: (value) => grouped(String(value)),
    tokens,
    loss: (value) => value.toFixed(4),
    seconds: (value) => `${value} s`,
    seats: (value) => value.join(", ") || "none",
    size: (value) => String(value.length),
    share: (value) => `${(100 * value).toFixed(1)} %`,
    short: (value) => value.slice(0, 12),
    time: (value) => new Date(1000 * value).toISOString().slice(0, 19).replace("T", " ") + " UTC",
    ratio: (value) => value.toFixed(3),
  };
  const at = (path) => path.reduce((value, name) => (value ?? {})[name], data);
  const show = (path, as = "count") => {
    const value = at(path);
    if (value === null || value === undefined || value === "") return el("span", {}, "–");
    const span = el("span", { "data-path": JSON.stringify(path), "data-as": as });
    span.textContent = FORMATS[as](value);
    if (as === "short") span.title = value;
    return span;
  };
  const derived = (text, tag = "span") => el(tag, { "data-derived": "" }, String(text));

  // --- pieces ---

  const section = (id, title, note, ...children) =>
    el("section", { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, title), note ? el("p", { class: "note" }, note) : null, children);
  const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
  const small = (...value) => el("small", {}, value);
  const table = (caption, names, rows) =>
    el("div", { class: "scroll" }, el("table", { class: "list", "aria-label": caption },
      el("thead", {}, el("tr", {}, names.map(([name, kind]) =>
        el("th", { scope: "col", class: kind }, name)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, i) =>
        el("td", { class: names[i][1] }, cell)))))));
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

  // --- head ---

  function drawHead() {
    return { job: jobHead, member: memberHead, network: networkHead }[data.kind]();
  }

  function jobHead() {
    const job = ["job"];
    const progress = [show([...job, "settled_rounds"]), " of ", show([...job, "rounds"]),
      small(show([...job, "final_rounds"]), " final")];
    return [
      el("div", { class: "title" }, el("h1", {}, "Job ", show([...job, "job"])),
        el("span", { class: "pill" }, show([...job, "status"], "text")),
        data.job.is_final ? el("span", { class: "pill" }, "nothing changes any more") : null, liveness(), toNetwork()),
      el("p", { class: "note" }, "As of block ", show([...job, "block", "number"]), ", ", show([...job, "now"], "time"),
        ", on chain ", show([...job, "chain_id"], "text")),
      warnings(),
      navigation([["loss", "Loss"], ["grid", "Seats and rounds"], ["replay", "Replay"], ["rounds", "Rounds"], ["games", "Games"],
        ["money", "Money"], ["members", "Members"], ["log", "What happened"]]),
      el("dl", { class: "facts" },
        fact("Settled rounds", progress),
        fact("Phase", show([...job, "phase"], "text"), small(nextDeadline())),
        fact("Held-out loss", newestLoss()),
        fact("Paid of the escrow", show(["money", "paid_wei"], "tokens"),
          small("of ", show(["money", "funded_wei"], "tokens"), " tokens")),
        fact("Seats held", show([...job, "providers"]), small("of ", show([...job, "seats"]))),
        fact("Verifiers ready", show([...job, "ready"]),
          small("of ", show([...job, "verifiers"]), " enrolled"))),
    ];
  }

  function liveness() {
    return live ? el("span", { class: "pill live", id: "liveness", role: "status" }, "live") : null;
  }

  function toNetwork() {
    return live ? el("a", { href: "/network" }, "The network") : null;
  }

  function warnings() {
    const found = [];
    if (data.unsafe.rounds.length) {
      found.push(el("div", { class: "warn", role: "note" }, el("strong", {}, "Not to be trusted: "),
        "more seats were slashed in rounds ", show(["unsafe", "rounds"], "seats"), " than the merge bears (",
        show(["job", "f"]), "). The model before round ", show(["unsafe", "safe_before"]), " is safe."));
    }
    if (data.signs.lines.length) {
      found.push(el("div", { class: "warn", role: "note" }, el("strong", {}, "What speaks against its models: "),
        data.signs.lines.map((_, i) => el("p", {}, show(["signs", "lines", i], "text")))));
    }
    if (data.money.faults.length) {
      found.push(el("div", { class: "warn", role: "note" }, el("strong", {}, "The ledger does not add up: "),
        data.money.faults.map((_, i) => el("p", {}, show(["money", "faults", i], "text")))));
    }
    return found;
  }

  function navigation(entries) {
    return el("nav", { "aria-label": "On this page" }, el("ul", {}, entries.map(([id, name]) =>
      el("li", {}, el("a", { href: `#${id}` }, name)))));
  }

  function newestLoss() {
    const known = data.curve.map((item, i) => [item, i]).filter(([item]) => lossField(item));
    if (!known.length) return ["not known yet"];
    const [last, first] = [known[known.length - 1][1], known[0][1]];
    return [show(["curve", last, lossField(data.curve[last])], "loss"),
      first === last ? null : small("from ", show(["curve", first, lossField(data.curve[first])], "loss"))];
  }

  const lossField = (item) =>
    item.certified !== null ? "certified" : item.own !== null ? "own" : null;

  function nextDeadline() {
    if (!data.job.deadlines.length) return ["no deadline runs"];
    const path = ["job", "deadlines", 0];
    return [show([...path, "text"], "text"), " ends ", show([...path, "until"], "time"), countdown()];
  }

  function countdown() {
    return live ? el("span", { id: "countdown", "data-derived": "", "aria-hidden": "true" }) : null;
  }

  function tick() {
    const node = document.getElementById("countdown");
    if (!node || !data.job.deadlines.length) return;
    const now = data.job.now + (Date.now() - seenAt) / 1000;
    const left = Math.max(0, Math.round(data.job.deadlines[0].until - now));
    node.textContent = ` (in ${left} s)`;
  }

  // --- loss ---

  function lossSection() {
    const rows = newest(data.curve, (item, i) => [show(["curve", i, "merged"]),
      show(["curve", i, "certified"], "loss"), show(["curve", i, "own"], "loss"),
      item.disputed ? "mismatch" : ""]);
    return section("loss", "Held-out loss",
      "Nats a token on text that is not trained on. A committee certifies a model’s with the next round.",
      el("div", { id: "curve" }),
      el("p", { class: "legend" }, el("span", { class: "key" }, mark("certified"), "certified"),
        el("span", { class: "key" }, mark("own"), "computed here")),
      el("details", { "data-keep": "loss" }, el("summary", {}, "As a table"),
        cut(["curve"]), table("Held-out loss by rounds merged",
          [["Rounds merged", N], ["Certified", N], ["Computed here", N], ["", ""]], rows)));
  }

  function mark(kind, x = 7, y = 7) {
    const shape = kind === "certified" ? svg("circle", { cx: x, cy: y, r: 4.5, class: kind })
      : svg("path", { d: `M${x} ${y - 6}l6 6l-6 6l-6-6z`, class: kind });
    return x === 7 && y === 7
      ? svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, shape) : shape;
  }

  function drawCurve() {
    const place = document.getElementById("curve");
    if (!place) return;
    const points = data.curve.flatMap((item) => ["own", "certified"]
      .filter((kind) => item[kind] !== null && (kind === "certified" || item.certified !== item.own))
      .map((kind) => ({ kind, x: item.merged, y: item[kind] })));
    if (!points.length) {
      place.replaceChildren(el("p", {}, "No loss is known yet."));
      return;
    }
    const width = Math.max(260, place.clientWidth), height = 220;
    const frame = { left: 46, right: 12, top: 12, bottom: 30 };
    const last = Math.max(1, data.curve.length - 1);
    const [low, high] = bounds(points.map((point) => point.y));
    const sx = (x) => frame.left + (x / last) * (width - frame.left - frame.right);
    const sy = (y) => frame.top + ((high - y) / (high - low)) * (height - frame.top - frame.bottom);
    const line = data.curve.filter(lossField)
      .map((item, i) => `${i ? "L" : "M"}${sx(item.merged).toFixed(1)} ${sy(item[lossField(item)]).toFixed(1)}`);
    place.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": "Held-out loss by rounds merged; the numbers are in the table below" },
      unsafeBands(sx, height - frame.bottom), axes({ width, height, frame, low, high, last, sx, sy }),
      svg("path", { class: "curve", d: line.join("") }),
      points.map((point) => fill(mark(point.kind, sx(point.x), sy(point.y)), {}, [
        svg("title", {}, `after ${point.x} rounds: ${point.y.toFixed(4)}`)]))));
  }

  function bounds(values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    // So much wider than a number's last bit that the axis's steps move it.
    const least = 1e-9 * Math.max(Math.abs(low), Math.abs(high));
    const room = low === high ? 0.08 * (Math.abs(high) || 1) : Math.max(0.08 * (high - low), least);
    return [low - room, high + room];
  }

  function axes({ width, height, frame, low, high, last, sx, sy }) {
    const lines = [];
    const rough = (high - low) / 4, ten = 10 ** Math.floor(Math.log10(rough));
    const gap = ten * [1, 2, 5, 10].find((n) => n * ten >= rough);
    const places = Math.max(0, -Math.floor(Math.log10(gap)));
    for (let y = Math.ceil(low / gap) * gap; y <= high; y += gap) {
      lines.push(svg("line", { class: "axis", x1: frame.left, x2: width - frame.right, y1: sy(y), y2: sy(y) }),
        svg("text", { x: frame.left - 6, y: sy(y) + 4, "text-anchor": "end", "data-derived": "" }, y.toFixed(places)));
    }
    const step = Math.max(1, Math.ceil(last / Math.max(2, Math.floor(width / 70))));
    for (let x = 0; x <= last; x += step) {
      lines.push(svg("text", { x: sx(x), y: height - 10, "text-anchor": "middle", "data-derived": "" }, String(x)));
    }
    return lines;
  }

  function unsafeBands(sx, height) {
    return data.unsafe.rounds.map((round) => svg("rect", { x: sx(round), y: 0,
      width: Math.max(2, sx(round + 1) - sx(round)), height, class: "part-burnt", opacity: 0.15 }));
  }

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
      ? el("span", { class: "mono" }, show([...path, "cid"], "text"))
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
        el("span", { class: "mono" }, show([...path, "model_digest"], "short"))];
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
    return at([...path, "tx"]) ? [", transaction ", el("span", { class: "mono" }, show([...path, "tx"], "short"))] : null;
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
    return section("money", "Money", "In tokens, from the job’s own events, counted again by the law of pay.",
      el("p", {}, "Funded ", show(["money", "funded_wei"], "tokens"), " = ", PARTS.map(([, field, name], i) =>
        [i ? " + " : null, name.toLowerCase(), " ", show(["money", field], "tokens")])),
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
        el("span", { class: "mono hash" }, show([...path, "tx"], "text")), show([...path, "text"], "text")];
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

  const named = (path) => live
    ? el("a", { href: `/member/${at([...path, "account"])}` }, show([...path, "name"], "text"))
    : show([...path, "name"], "text");
  const who = (path) => [named(path), " ",
    at([...path, "name"]) === at([...path, "account"]) ? null
      : el("div", { class: "when mono" }, show([...path, "account"], "text"))];

  function membersSection() {
    const names = [["Who", ""], ["Role", ""], ["Index", N], ["Rounds", "short"], ["Bond", N], ["Paid", N],
      ["Can claim", N], ["Lost", N], ["Gateway", ""]];
    const rows = data.members.map((member, i) => {
      const path = ["members", i];
      return [who(path), [show([...path, "role"], "text"), member.slashed ? ", slashed" : member.ready ? null : ", not ready"],
        show([...path, "index"], "text"), ["from ", show([...path, "start"], "text"),
          member.to === null ? null : [", gone from ", show([...path, "to"], "text")]],
        ...["bond_wei", "paid_wei", "claimable_wei", "slashed_wei"].map((name) => show([...path, name], "tokens")),
        el("span", { class: "mono" }, show([...path, "gateway"], "text"))];
    });
    return section("members", "Members", "Everybody who has or had a seat or a slot; amounts in tokens.",
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

  // --- a member ---

  function memberHead() {
    return [el("div", { class: "title" }, el("h1", {}, "Member ", show(["name"], "text")), liveness(), toNetwork()),
      el("p", { class: "note" }, el("span", { class: "mono" }, show(["account"], "text")), ", as of block ",
        show(["block"]), ", ", show(["now"], "time")),
      data.gateway ? el("p", { class: "note" }, "Serves at ",
        el("span", { class: "mono" }, show(["gateway"], "text"))) : null,
      el("p", { class: "note" }, "Owner ", el("span", { class: "mono" }, show(["owner"], "text")),
        data.owner === data.account ? ", the account itself" : null, "; pay goes to ",
        el("span", { class: "mono" }, show(["payee"], "text"))),
      navigation([["sums", "Pay"], ["jobs", "Jobs"], ["log", "What happened"]]),
      el("dl", { class: "facts" },
        fact("Stake", show(["stake_wei"], "tokens"), small("what unbonds included")),
        fact("In bonds", show(["bonds_wei"], "tokens")), fact("Slashed", show(["slashed_wei"], "tokens")),
        fact("Won", show(["won_wei"], "tokens"), small("of others’ bonds")))];
  }

  const SUMS = [["Paid", "paid_wei"], ["Due", "due_wei"], ["Pending", "pending_wei"], ["Lost", "lost_wei"],
    ["Not earned", "unearned_wei"], ["Penalties", "penalty_wei"]];
  const sums = (path) => el("dl", { class: "split" }, SUMS.map(([name, field]) =>
    fact(name, show([...path, field], "tokens"))));

  function memberSums() {
    return section("sums", "Pay", "In tokens, of all jobs: due is FINAL and not claimed yet.", sums(["sums"]));
  }

  function memberJobs() {
    const jobs = data.jobs.map((job, i) => {
      const path = ["jobs", i], number = show([...path, "job"], "text");
      return el("div", { class: "game" },
        el("h3", {}, "Job ", live ? el("a", { href: `/job/${job.job}` }, number) : number, ", ",
          show([...path, "status"], "text")),
        job.holdings.map((held, k) => memberHolding(held, [...path, "holdings", k])), sums(path),
        job.faults.map((_, k) => el("p", { class: "warn" }, show([...path, "faults", k], "text"))),
        job.excluded ? el("p", { class: "note" }, show([...path, "excluded"]), " earlier lines are not shown.") : null,
        el("details", { "data-keep": `job ${job.job}` }, el("summary", {}, "Every amount, and why"),
          table("Every amount of this job", [["Round", N], ["For", ""], ["Tokens", N], ["Is", ""], ["Why", ""]],
            job.lines.map((line, k) => memberLine(line, [...path, "lines", k])).reverse())));
    });
    return section("jobs", "Jobs", null, jobs.length ? jobs : el("p", {}, "It never had a part in a job."));
  }

  function memberHolding(held, path) {
    return el("p", { class: "note" }, show([...path, "role"], "text"), " ", show([...path, "index"], "text"),
      ", from round ", show([...path, "start"], "text"),
      held.to === null ? null : [", gone from ", show([...path, "to"], "text")], ", bond ",
      show([...path, "bond_wei"], "tokens"), held.released ? ", which is home" : null,
      held.slashed ? ", slashed" : null);
  }

  function memberLine(line, path) {
    return [show([...path, "round"], "text"), show([...path, "what"], "text"), show([...path, "wei"], "tokens"),
      show([...path, "state"], "text"), [show([...path, "text"], "text"),
        line.until ? [", FINAL from ", show([...path, "until"], "time")] : null]];
  }

  // --- a network ---

  function networkHead() {
    return [el("div", { class: "title" }, el("h1", {}, "Network"), liveness()),
      el("p", { class: "note" }, "As of block ", show(["block"]), ", ", show(["now"], "time")),
      el("dl", { class: "facts" }, fact("Jobs", show(["jobs"], "size")), fact("Members", show(["members"], "size")))];
  }

  function networkJobs() {
    const names = [["Job", N], ["Status", ""], ["Phase", ""], ["Settled", N], ["Providers", N], ["Verifiers", N],
      ["Open games", N], ["Funded", N], ["Paid", N], ["Burnt", N], ["Refunded", N]];
    const rows = data.jobs.map((job, i) => {
      const path = ["jobs", i];
      return [el("a", live ? { href: `/job/${job.job}` } : {}, show([...path, "job"], "text")),
        show([...path, "status"], "text"), show([...path, "phase"], "text"),
        [show([...path, "settled_rounds"]), " of ", show([...path, "rounds"])],
        ...["providers", "verifiers", "open_games"].map((name) => show([...path, name])),
        ...["funded_wei", "paid_wei", "burnt_wei", "refunded_wei"].map((name) => show([...path, name], "tokens"))];
    });
    return section("jobs", "Jobs", "Amounts in tokens.",
      rows.length ? table("Jobs", names, rows) : el("p", {}, "No job was ever submitted."));
  }

  function networkMembers() {
    const names = [["Who", ""], ["Roles", ""], ["Stake", N], ["In bonds", N], ["Slashed", N], ["Won", N], ["Jobs", ""],
      ["Owner", ""], ["Pay to", ""], ["Gateway", ""]];
    const rows = data.members.map((member, i) => {
      const path = ["members", i];
      return [who(path), member.roles.join(", "),
        ...["stake_wei", "bonds_wei", "slashed_wei", "won_wei"].map((name) => show([...path, name], "tokens")),
        show([...path, "jobs"], "seats"),
        ...["owner", "payee"].map((name) => member[name] === member.account ? "itself"
          : el("span", { class: "mono" }, show([...path, name], "text"))),
        el("span", { class: "mono" }, show([...path, "gateway"], "text"))];
    });
    return section("members", "Members and stakes", "Tokens in the stakes contract, what unbonds included.",
      rows.length ? table("Members", names, rows) : el("p", {}, "Nobody has staked yet."));
  }

  // --- drawing ---

  const SECTIONS = {
    job: [lossSection, gridSection, replaySection, roundsSection, gamesSection, moneySection, membersSection, measuredSection, logSection],
    member: [memberSums, memberJobs, logSection],
    network: [networkJobs, networkMembers],
  };

  // What of a page is open, has the focus, or is scrolled, by a name that outlives a new drawing.
  const placeOf = (node) => JSON.stringify([node.closest("section")?.id, node.closest("[data-keep]")?.dataset.keep,
    node.tagName, node.id, node.getAttribute("href"), { ...node.dataset }, node.closest("table, ol")?.ariaLabel]);
  const scrollers = () => [...document.querySelectorAll(".scroll, ol.log")];
  const scrollerOf = (node) => JSON.stringify([node.tagName, (node.querySelector("table") || node).ariaLabel]);

  function draw() {
    const kept = new Map([...document.querySelectorAll("details[data-keep]")].map((d) => [d.dataset.keep, d.open]));
    const moved = new Map(scrollers().map((node) => [scrollerOf(node), [node.scrollLeft, node.scrollTop]]));
    const focused = document.activeElement, place = placeOf(focused);
    document.getElementById("head").replaceChildren(...drawHead().flat(Infinity).filter(Boolean));
    document.getElementById("content").replaceChildren(
      ...SECTIONS[data.kind].map((make) => make()).filter(Boolean));
    document.querySelectorAll("details[data-keep]").forEach((d) => {
      if (kept.has(d.dataset.keep)) d.open = kept.get(d.dataset.keep);
    });
    scrollers().forEach((node) => [node.scrollLeft, node.scrollTop] = moved.get(scrollerOf(node)) || [0, 0]);
    if (data.kind === "job") {
      drawCurve();
      drawChoice();
      drawMoment();
      tick();
    }
    if (focused.isConnected) return;
    const same = [...document.querySelectorAll(focused.tagName)].find((node) => placeOf(node) === place);
    same?.focus({ preventScroll: true });
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

  async function look() {
    const silent = () => tellLiveness("not live: the dashboard does not answer");
    const late = setTimeout(silent, PATIENCE_MS);
    try {
      const answer = await fetch(live, { cache: "no-cache" });
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text(), isNew = text !== source.textContent;
      const isHeld = isNew && !getSelection().isCollapsed;
      if (isNew && !isHeld) {
        source.textContent = text;
        [data, seenAt] = [JSON.parse(text), Date.now()];
        draw();
      }
      tellLiveness(isHeld ? "waits while text is marked" : sinceNews());
    } catch {
      silent();
    }
    clearTimeout(late);
    setTimeout(look, 2000);
  }

  draw();
  addEventListener("resize", () => { if (data.kind === "job") drawCurve(); });
  if (live) {
    setTimeout(look, 2000);
    if (data.kind === "job") setInterval(tick, 1000);
  }
  document.documentElement.dataset.drawn = "yes";
})();
