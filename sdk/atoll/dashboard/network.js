// --- a member ---

function memberHead() {
  return [el("div", { class: "title" }, el("h1", {}, "Member ", show(["name"], "text")), liveness(), toNetwork()),
    el("p", { class: "note" }, el("span", { class: "mono" }, show(["account"], "text")), copier(data.account),
      looked("address", data.account), ", as of block ",
      show(["block"]), ", ", show(["now"], "time")),
    data.gateway ? el("p", { class: "note" }, "Serves at ",
      el("span", { class: "mono" }, show(["gateway"], "text"))) : null,
    el("p", { class: "note" }, "Owner ", data.owner === data.account ? "the account itself" : address(["owner"]),
      "; pay goes to ", data.payee === data.account ? "it" : address(["payee"])),
    navigation([["sums", "Pay"], ["jobs", "Jobs"], ["log", "What happened"]]),
    el("dl", { class: "facts" },
      fact("Stake", show(["stake_wei"], "tokens"), small("what unbonds included")),
      fact("In bonds", show(["bonds_wei"], "tokens")), fact("Slashed", show(["slashed_wei"], "tokens")),
      fact("Won", show(["won_wei"], "tokens"), small("of others’ bonds")))];
}

const SUMS = [["Paid", "paid_wei"], ["Due", "due_wei"], ["Pending", "pending_wei"], ["Lost", "lost_wei"],
  ["Not earned", "unearned_wei"], ["Penalties", "penalty_wei"], ["Of paid, in bonds", "retained_wei"]];
const sums = (path) => el("dl", { class: "split" }, SUMS.map(([name, field]) =>
  fact(name, show([...path, field], "tokens"))));

function memberSums() {
  return section("sums", "Pay", "In tokens, of all jobs: due is FINAL and not claimed yet.", sums(["sums"]));
}

function memberJobs() {
  const jobs = data.jobs.map((job, i) => {
    const path = ["jobs", i], number = show([...path, "job"], "text");
    return el("div", { class: "game" },
      el("h3", {}, "Job ", linkTo(`job/${job.job}`, number), ", ",
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
    show([...path, "bond_wei"], "tokens"), " (", show([...path, "retained_wei"], "tokens"), " of it pay)",
    held.released ? ", which is home" : null, held.slashed ? ", slashed" : null);
}

function memberLine(line, path) {
  return [show([...path, "round"], "text"), show([...path, "what"], "text"), show([...path, "wei"], "tokens"),
    show([...path, "state"], "text"), [show([...path, "text"], "text"),
      line.until ? [", FINAL from ", show([...path, "until"], "time")] : null]];
}

// --- a network ---

function networkHead() {
  return [el("div", { class: "title" }, el("h1", {}, "Network"), liveness()),
    el("p", { class: "lead" }, "Strangers train language models here, and check each other’s work."),
    el("p", { class: "note" }, "As of block ", show(["block"]), ", ", show(["now"], "time")),
    el("dl", { class: "facts" }, fact("Jobs", show(["jobs"], "size")), fact("Members", show(["members"], "size")),
      fact("Tokens trained", show(["sums", "tokens"]), small("in ", show(["sums", "rounds"]), " rounds")),
      fact("Paid", show(["sums", "paid_wei"], "tokens"), small("tokens")),
      fact("Slashed", show(["sums", "slashed_wei"], "tokens"), small("tokens of stake")))];
}

function networkJobs() {
  const names = [["Job", ""], ["Status", ""], ["Phase", ""], ["Settled", N], ["Tokens", N], ["Loss", N], ["Providers", N], ["Verifiers", N],
    ["Open games", N], ["Funded", N], ["Paid", N], ["Burnt", N], ["Refunded", N]];
  const rows = data.jobs.map((job, i) => {
    const path = ["jobs", i];
    return [linkTo(`job/${job.job}`, show([...path, "job"], "text"), job.name ? [" ", show([...path, "name"], "text")] : null),
      show([...path, "status"], "text"), show([...path, "phase"], "text"),
      [show([...path, "settled_rounds"]), " of ", show([...path, "rounds"])], show([...path, "tokens"]), show([...path, "loss"], "loss"),
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
      ...["owner", "payee"].map((name) => member[name] === member.account ? "itself" : address([...path, name])),
      el("span", { class: "mono" }, show([...path, "gateway"], "text"))];
  });
  return section("members", "Members and stakes", "Tokens in the stakes contract, what unbonds included.",
    rows.length ? table("Members", names, rows) : el("p", {}, "Nobody has staked yet."));
}

