// ---- the text: a click pins a query
let chips = [], written = "";
function showText() {
  const { queries, tokens } = layers[state.layer], what = `${state.sequence} ${tokens ? tokens[0] : "-" + queries}`;
  if (written !== (written = what)) {
    chips = Array.from({ length: queries }, (_, i) => el("button", { className: "token", textContent: cut(token(0, i), 24),
      role: "option", title: `${token(0, i)} (${i})`, onclick: () => set({ pin: state.pin === i ? null : i }) }));
    $("tokens").replaceChildren(...chips);
  }
  chips.forEach((chip, i) => {
    chip.ariaSelected = chip.ariaCurrent = state.pin === i;
    chip.tabIndex = i === (state.pin === null ? 0 : state.pin) ? 0 : -1;
  });
}
$("tokens").onkeydown = event => {  // the text is one tab stop
  const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
  const i = chips.indexOf(event.target);
  if (!by || i < 0) return;
  const to = chips[clamp(i + by, 0, chips.length - 1)];
  event.target.tabIndex = -1; to.tabIndex = 0; to.focus();
  event.preventDefault(); event.stopPropagation();
};

// ---- a head in a few sentences, for those who do not see the maps, and for all others
function summarize() {
  const l = state.layer, h = state.head, { kinds, queries, keys } = layers[l], P = numbers(l, h, "pattern");
  const alike = alikeSides(), means = { "the token before it": [0, 0], itself: [0, 0], "the first token": [0, 0] };
  const add = (what, p) => { means[what][0] += p; means[what][1]++; };
  let n = 0, entropy = 0;
  for (let q = 0; q < queries; q++) {
    let seen = 0, nats = 0;
    for (let k = 0; k < keys; k++) {
      const p = P.at(q, k);
      if (!P.hides(q, k)) seen++;
      if (p > 0) nats -= p * Math.log(p);
    }
    if (!seen || alike && !q && seen === 1) continue;  // nothing to choose from
    n++; entropy += nats;
    if (alike) { add("itself", P.at(q, q)); if (q) add("the token before it", P.at(q, q - 1)); }
    if (!alike || q > 1) add("the first token", P.at(q, 0));  // the first of others is itself, or the one before
  }
  const said = [];
  if (n) {
    const shares = Object.entries(means).map(([what, [sum, of]]) => [what, of ? sum / of : 0]);
    const main = shares.filter(([, v]) => v >= .01).sort((a, b) => b[1] - a[1])
      .map(([what, v]) => `${Math.round(100 * v)} % to ${what}`);
    said.push(`On average a query gives ${main.join(", ") || "next to nothing to its neighbours or the first token"}; `
      + `it reads about ${Math.exp(entropy / n).toFixed(1)} keys at a time.`);
  }
  const kind = kinds.includes("dS") ? "dS" : kinds[1];
  if (kind) {
    const view = numbers(l, h, kind), at = view.largest;
    if (view.strange) said.push(`Its ${kind} is not finite in ${view.strange} cells.`);
    if (at || !view.strange) said.push(!at ? `Its ${kind} is 0 everywhere.`
      : `Its largest ${kind}, ${signed(view.at(...at))}, is at query ${token(0, at[0])} (${at[0]}) → key ${token(1, at[1])} `
        + `(${at[1]}): ${effect(kind, view.at(...at))}.`);
  }
  const number = name => { const raw = own(data.stats, name); return raw ? Number(raw[l][h]) : NaN; };
  const gate = number("gate_grad"), matters = data.matters && data.matters !== "gate_grad" ? number(data.matters) : NaN;
  if (gate === 0) said.push("More or less of what it writes changes nothing, to first order (gate_grad 0).");
  else if (!isNaN(gate))
    said.push(`To first order, more of what it writes ${gate > 0 ? "raises" : "lowers"} ${data.of} (gate_grad ${signed(gate)}).`);
  if (!isNaN(matters)) said.push(data.matters.startsWith("ablat")
    ? `Without it ${data.of} ${matters > 0 ? "rises" : "falls"} by ${brief(Math.abs(matters))} (${data.matters}).`
    : `${data.matters}: ${signed(matters)}.`);
  fill("summary", said.join(" "));
}

// ---- what a reader would look for first: which head matters most, where it looks, and the edge that matters most
const LOOKS = { previous: "the token before", sink: "the first token" };
function showFinding() {
  const raw = data.matters && own(data.stats, data.matters), heads = [], said = [];
  if (raw) each((l, h) => heads.push([Number(raw[l][h]), l, h]));
  const known = heads.filter(([v]) => isFinite(v)).sort(([a], [b]) => Math.abs(b) - Math.abs(a));
  if (known.length && known[0][0]) {
    const [v, l, h] = known[0], name = full(l, h), measured = data.matters.startsWith("ablat");
    const alike = known.filter(([u]) => Math.abs(u) >= Math.abs(v) / 10).length;
    said.push(measured ? `${name} matters most: without it ${data.of} ${v > 0 ? "rises" : "falls"} by ${brief(Math.abs(v))}.`
      : `By ${data.matters}, ${name} stands out (${signed(v)}).`);
    if (known.length > 1) said.push(alike === 1 ? "No other head comes to a tenth of that."
      : alike === known.length ? "All others come to a tenth of that or more."
      : `Of the ${known.length} heads, ${alike} come to a tenth of that or more.`);
    const looks = Object.keys(LOOKS).map(stat => [Number(own(data.stats, stat)?.[l][h]), stat])
      .filter(([share]) => share >= .3).sort(([a], [b]) => b - a)[0];
    if (looks) said.push(`It gives ${Math.round(100 * looks[0])} % of its attention to ${LOOKS[looks[1]]}.`);
  }
  const edge = data.flow && data.flow.edges[0];
  if (edge) said.push(`The edge that ${data.flow.method === "cut" ? "matters most" : "is largest to first order"} is ${inWords(...edge)}.`);
  $("finding").hidden = !said.length;
  fill("finding", said.join(" "));
}
