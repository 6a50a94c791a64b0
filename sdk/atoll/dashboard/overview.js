// --- a job's first screen: what, how well, until when, for how much ---

function jobHead() {
  const job = ["job"];
  return [
    el("div", { class: "title" }, jobTitle(), el("span", { class: "pill" }, show([...job, "status"], "text")),
      data.job.is_final ? el("span", { class: "pill" }, "nothing changes any more") : null, liveness(), toNetwork()),
    whatLine(),
    data.what?.about ? el("blockquote", { class: "about" }, show(["what", "about"], "text"),
      el("footer", { class: "note" }, "the submitter’s words")) : null,
    el("p", { class: "note" }, "As of block ", show([...job, "block", "number"]), ", ", show([...job, "now"], "time"),
      ", on chain ", show([...job, "chain_id"], "text"), ". Submitted by ",
      el("span", { class: "nobreak" }, memberOf(job, "submitter"), copier(data.job.submitter),
        looked("address", data.job.submitter))),
    byWhom(),
    warnings(),
    advance(),
    el("dl", { class: "facts" }, jobFacts()),
    navigation([...(hasTask() ? [["rewards", "Rewards"]] : []), ["loss", "Loss"], ["seats", "Seats"], ["grid", "Seats and rounds"], ["replay", "Replay"], ["what", "What"],
      ["price", "Price"], ["money", "Money"], ["members", "Members"], ["rounds", "Rounds"], ["games", "Games"], ["log", "What happened"]]),
  ];
}

function jobTitle() {
  const number = ["Job ", show(["job", "job"])];
  return data.what ? el("h1", {}, show(["what", "name"], "text"), el("span", { class: "sub" }, " · ", number))
    : el("h1", {}, number);
}

// The sentence for who has never heard of the job.
function whatLine() {
  const seats = [show(["job", "seats"]), " seats, ", show(["job", "rounds"]), " rounds"];
  if (!data.what) return el("p", { class: "lead" }, "A language model, trained by ", seats, ". Nobody serves its manifest now, which says more.");
  const part = data.what.adapters ? [", of which adapters (", show(["what", "adapters"], "text"), ") of ",
    show(["what", "trained_parameters"]), " parameters are trained"] : null;
  const task = data.what.task ? [", trained by the rewards of answers to ", show(["what", "task", "prompts"]), " prompts"]
    : [", on ", show(["what", "train_tokens"]), " tokens of text"];
  return el("p", { class: "lead" }, "A ", show(["what", "kind"], "text"), " language model of ", show(["what", "parameters"]),
    " parameters", part, task, ", from ", show(["what", "start"], "text"), ": ", seats, ".");
}

const NAMED = 8; // of who trains; the section has all

function byWhom() {
  const held = data.seats.map((seat, i) => [seat, i]).filter(([seat]) => seat.account);
  if (!held.length) return el("p", { class: "note" }, "Nobody trains it yet.");
  const names = held.slice(0, NAMED).map(([, i], k) => [k ? ", " : null, memberOf(["seats", i])]);
  return el("p", { class: "note" }, "Trained by ", names, held.length > NAMED ? " and others" : null, "; merged and audited by ",
    show(["job", "verifiers"]), " verifiers.");
}

// Rounds that are settled, and of these the final ones.
function advance() {
  const { settled_rounds: settled, final_rounds: final, rounds } = data.job;
  const part = (count) => `${(100 * count) / Math.max(1, rounds)}%`;
  return el("div", { class: "advance" },
    svg("svg", { class: "track", role: "img", "aria-label": "How much of the job is settled, and final; the numbers follow" },
      svg("rect", { class: "part-left", width: "100%", height: 10 }), svg("rect", { class: "part-settled", width: part(settled), height: 10 }),
      svg("rect", { class: "part-final", width: part(final), height: 10 })),
    el("p", { class: "note" }, show(["job", "settled_rounds"]), " of ", show(["job", "rounds"]), " rounds settled, ",
      show(["job", "final_rounds"]), " final. ", theEnd()));
}

function theEnd() {
  const { speed, job } = data;
  const time = (name) => [show(["speed", name], "minute"), until(speed[name])];
  if (job.is_final && speed.trained_by) return ["Trained ", time("trained_by"), "."];
  if (!speed.trained_by) return ["It ends by ", time("ends_at_most"), " at the latest."];
  if (!speed.is_training) return ["Trained ", time("trained_by"), "; the result is final ", time("final_by"), "."];
  return ["By the pace of the newest rounds trained about ", time("trained_by"), ", final about ", time("final_by"),
    "; closed by ", show(["speed", "ends_at_most"], "minute"), " at the latest."];
}

function jobFacts() {
  const { price, speed } = data;
  return [
    hasTask() ? fact("Mean reward", newestReward()) : fact("Held-out loss", newestLoss()),
    fact("Phase", show(["job", "phase"], "text"), small(phaseEnd())),
    fact("Tokens trained", show(["speed", "tokens"]), small("of ", show(["speed", "planned_tokens"]), " planned")),
    fact("Tokens a second", show(["speed", "recent_tokens_per_second"], "rate"),
      speed.recent_rounds ? small("over the newest ", show(["speed", "recent_rounds"]), speed.recent_rounds === 1 ? " round" : " rounds") : null),
    fact("A million tokens cost", show(["price", "earned_million_wei"], "tokens"),
      small("of the network’s token, ", isKnown(["price", "earned_million_wei"]) ? "so far; " : "nothing so far; ",
        show(["price", "million_wei"], "tokens"), " as planned")),
    fact("Share that trained", show(["price", "training_share"], "share"),
      small("of what was earned so far; ", show(["price", "planned_training_share"], "share"), " as planned")),
    fact("Paid of the escrow", show(["money", "paid_wei"], "tokens"),
      small("of ", show(["money", "funded_wei"], "tokens"), " tokens")),
    fact("Gas so far", price.gas ? [show(["price", "gas", "gas"])] : "–",
      price.gas ? small(show(["price", "gas", "wei"], "coin"), " coin, ", show(["price", "gas", "counted"]), " of ",
        show(["price", "gas", "transactions"]), " transactions") : small("not counted here")),
    fact("Seats held", show(["job", "providers"]), small("of ", show(["job", "seats"]))),
    fact("Verifiers ready", show(["job", "ready"]), small("of ", show(["job", "verifiers"]), " enrolled")),
  ];
}

function warnings() {
  const warned = [];
  const warn = (title, ...lines) => warned.push(el("div", { class: "warn", role: "note" }, el("strong", {}, title), lines));
  if (data.unsafe.rounds.length) {
    warn("Not to be trusted: ", "more seats were slashed in rounds ", show(["unsafe", "rounds"], "seats"),
      " than the merge bears (", show(["job", "f"]), "). The model before round ", show(["unsafe", "safe_before"]), " is safe.");
  }
  if (data.signs.lines.length) {
    warn("What speaks against its models: ", data.signs.lines.map((_, i) => el("p", {}, show(["signs", "lines", i], "text"))));
  }
  if (data.money.faults.length) {
    warn("The ledger does not add up: ", data.money.faults.map((_, i) => el("p", {}, show(["money", "faults", i], "text"))));
  }
  return warned;
}

function newestLoss() {
  const known = data.curve.map((item, i) => [item, i]).filter(([item]) => lossField(item));
  if (!known.length) return ["not known yet"];
  const [last, first] = [known[known.length - 1][1], known[0][1]];
  return [show(["curve", last, lossField(data.curve[last])], "loss"),
    small(first === last ? null : ["from ", show(["curve", first, lossField(data.curve[first])], "loss"), ", "],
      data.curve[last].merged ? null : "before training, ", "in nats a token; lower is better")];
}

const hasReward = (item) => typeof item.reward === "number";
const hasHeldOut = (item) => typeof item.held_out_reward === "number";
const hasTask = () => Boolean(data.what?.task) || data.curve.some(hasReward);

function newestReward() {
  const last = data.curve.findLastIndex(hasReward);
  const held = data.curve.findLastIndex(hasHeldOut);
  return [last < 0 ? "not known yet" : show(["curve", last, "reward"], "share"),
    small(last < 0 ? null : ["of what an answer may be worth, in round ", derived(data.curve[last].merged - 1)],
      held < 0 ? null : ["; held out ", show(["curve", held, "held_out_reward"], "share")])];
}

const lossField = (item) =>
  item.certified !== null ? "certified" : item.own !== null ? "own" : null;

// The phase's own end; what else runs out first stands below.
function phaseEnd() {
  const { deadline, phase, expiry } = data.job;
  if (deadline) return ["ends ", show(["job", "deadline"], "time"), until(deadline)];
  if (phase === "waiting") return ["for members, until ", show(["job", "expiry"], "minute"), until(expiry)];
  if (!data.job.deadlines.length) return ["no deadline runs"];
  const path = ["job", "deadlines", 0];
  return ["next ", show([...path, "text"], "text"), ", ends ", show([...path, "until"], "time"), until(at([...path, "until"]))];
}

// --- what is trained ---

function whatSection() {
  const path = ["what"];
  if (!data.what) {
    return section("what", "What is trained", null, el("p", {}, "No member serves the job’s manifest now. Its CID is ",
      hash(["job", "spec_cid"]), "."));
  }
  const row = (name, ...value) => [el("dt", {}, name), el("dd", {}, value)];
  return section("what", "What is trained", "From the job’s manifest, whose digest is on the chain.",
    el("dl", { class: "rows" },
      row("Name, the submitter’s word", show([...path, "name"], "text")),
      row("Model", show([...path, "kind"], "text"), ", ", show([...path, "layers"]), " layers of width ", show([...path, "width"]),
        ", ", show([...path, "heads"]), " heads, ", show([...path, "vocabulary"]), " tokens in its vocabulary, context ", show([...path, "context"])),
      row("Parameters", show([...path, "parameters"]), ", of which ", show([...path, "trained_parameters"]), " are trained",
        data.what.adapters ? [": adapters, ", show([...path, "adapters"], "text")] : null),
      row("Starts from", show([...path, "start"], "text")),
      data.what.task ? taskRow(row) : row("Text", show([...path, "train_tokens"]), " tokens ", hash([...path, "train_cid"]), ", held out ",
        show([...path, "held_out_tokens"]), " ", isKnown([...path, "held_out_cid"]) ? hash([...path, "held_out_cid"]) : null),
      data.what.sources.length ? row("From the Hub, says the submitter", data.what.sources.map((_, i) =>
        el("div", { class: "mono" }, show([...path, "sources", i], "text")))) : null,
      data.what.method.map((_, i) => row(show([...path, "method", i, "name"], "text"), show([...path, "method", i, "text"], "text"))),
      row("Manifest", hash(["job", "spec_cid"]))),
    modelAndSample());
}

function taskRow(row) {
  const path = ["what", "task"];
  return [row("Prompts", show([...path, "prompts"]), " ", hash(["what", "train_cid"])),
    row("Answers", show([...path, "group"]), " to each prompt, of at most ", show([...path, "new_tokens"]), " tokens"),
    row("Rewards", data.what.task.rewards.map((_, i) => el("div", {}, show([...path, "rewards", i], "text"))))];
}

function modelAndSample() {
  const given = data.sample ? [el("h3", {}, "What it writes"),
    el("p", { class: "note" }, "The model after ", show(["sample", "merged"]), " rounds, asked to go on with “", show(["sample", "prompt"], "text"), "”:"),
    el("blockquote", {}, show(["sample", "text"], "text"))] : [el("h3", {}, "The model")];
  const known = data.job.model_digest;
  return el("div", { class: "part" }, given,
    el("dl", { class: "rows" },
      known ? [el("dt", {}, "Newest model"), el("dd", {}, hash(["job", "model_cid"]), " digest ", hash(["job", "model_digest"]))] : null,
      [["Have it write", "sample"], ["Fetch it", data.job.is_final ? "result" : "model"], ["Check the job", "audit"]].map(([name, key]) =>
        [el("dt", {}, name), el("dd", {}, command(["commands", key]))])));
}

// --- for how much ---

const SHARES = [["train", "training_wei", "training_share", "Training"], ["merge", "verification_wei", "verification_share", "Merges and audits"]];

function priceSection() {
  const path = ["price"], { gas } = data.price;
  let x = 0;
  const bars = SHARES.map(([kind, , share]) => {
    const width = 100 * (at([...path, share]) || 0);
    x += width;
    return svg("rect", { x: `${x - width}%`, width: `${width}%`, height: 28, class: `part-${kind}` });
  });
  return section("price", "Price", "In the network’s token, as things stand: what was earned for rounds that are settled.",
    isKnown([...path, "training_share"]) ? svg("svg", { class: "bar", role: "img", "aria-label": "What was earned, by training and by merges and audits; the shares follow" }, bars) : null,
    el("dl", { class: "split" },
      SHARES.map(([kind, wei, share, name]) => el("div", {}, el("dt", { class: "key" },
        svg("svg", { class: "swatch", "aria-hidden": "true" }, svg("rect", { width: 16, height: 16, class: `part-${kind}` })), name),
      el("dd", {}, show([...path, share], "share"), small(show([...path, wei], "tokens"))))),
      fact("A million tokens", show([...path, "earned_million_wei"], "tokens"), small("as planned ", show([...path, "million_wei"], "tokens"))),
      fact("The whole job", show([...path, "earned_wei"], "tokens"), small("at most ", show([...path, "budget_wei"], "tokens"))),
      fact("Planned for training", show([...path, "planned_training_share"], "share"), small("merges and audits ", show([...path, "planned_verification_share"], "share"))),
      gas ? fact("Gas, in the chain’s coin", show([...path, "gas", "wei"], "coin"), small(show([...path, "gas", "gas"]), " gas in ",
        show([...path, "gas", "counted"]), " of ", show([...path, "gas", "transactions"]), " transactions")) : null));
}

