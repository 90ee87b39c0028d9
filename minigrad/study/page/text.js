// ---- the text. Each token is shaded by the loss of the prediction made there, and a click pins a query; or by what that
// prediction sends to the head on display, and a click shows this alone
let chips = [], written = "";
function showText() {
  const { queries, tokens } = layers[state.layer], what = `${state.sequence} ${tokens ? tokens[0] : "-" + queries}`;
  if (written !== (written = what)) {
    chips = Array.from({ length: queries }, (_, i) => el("button", { className: "token", textContent: cut(token(0, i), 24),
      role: "option", onclick: () => set(byGates() ? { prediction: state.prediction === i ? null : i }
                                                   : { pin: state.pin === i ? null : i }) }));
    $("tokens").replaceChildren(...chips);
  }
  const { values, most, signs, says, title } = byGates() ? shadesByGate() : shadesByLoss(queries);
  const chosen = byGates() ? state.prediction : state.pin;
  $("shaded").textContent = says;
  chips.forEach((chip, i) => {
    const shade = values && colour(values[i] / (most || 1), signs, false);
    Object.assign(chip.style, shade ? { background: css(shade), color: inkOn(shade) } : { background: "", color: "" });
    chip.title = `${token(0, i)} (${i})${values ? title(values[i]) : ""}`;
    chip.ariaSelected = chip.ariaCurrent = chosen === i;
    chip.tabIndex = i === (chosen === null ? 0 : chosen) ? 0 : -1;
  });
}
const byGates = () => state.marked === "gate" && !!gates(state.layer, state.head);
function shadesByLoss(queries) {
  const losses = data.losses && data.losses[state.sequence].length === queries ? data.losses[state.sequence].map(Number) : null;
  const most = Math.max(0, ...(data.losses || []).flat().map(Number).filter(isFinite));
  return { values: losses, most, signs: false, title: v => `; the loss of what comes next: ${format(v)}`,
           says: "Click a token to see where it looks." + (losses ? ` Shaded by the loss of the prediction of the next token, up to ${brief(most)}.` : "") };
}
const MOST_OF = .8;  // the share of the gradient whose predictions are counted
function shadesByGate() {
  const values = [...gates(state.layer, state.head)], sizes = values.map(Math.abs).sort((a, b) => b - a);
  const total = sizes.reduce((a, b) => a + b, 0), most = sizes[0];
  let sum = 0;
  const n = sizes.findIndex(v => (sum += v) >= MOST_OF * total) + 1;
  const says = "Shaded by what the prediction after each token adds to this head's gate_grad in this sequence. "
    + (total ? `${n} of ${values.length} predictions make up ${100 * MOST_OF} % of it, by size. ` : "")
    + "Orange: more of the head raises that loss. Green: it lowers it. Click a token to see the dS of its prediction alone.";
  return { values, most, signs: true, says, title: v => `; what comes next adds ${signed(v)} to gate_grad` };
}
$("tokens").onkeydown = event => {  // the text is one tab stop
  const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
  const i = chips.indexOf(event.target);
  if (!by || i < 0) return;
  const to = chips[clamp(i + by, 0, chips.length - 1)];
  event.target.tabIndex = -1; to.tabIndex = 0; to.focus();
  event.preventDefault(); event.stopPropagation();
};

// ---- the finding: which head matters most, where it looks, and the largest edge between heads
const LOOKS = { previous: "the token before", sink: "the first token" };
function showFinding() {
  const raw = data.matters && own(data.stats, data.matters), heads = [], said = [];
  if (raw) each((l, h) => heads.push([Number(raw[l][h]), l, h]));
  const known = heads.filter(([v]) => isFinite(v)).sort(([a], [b]) => Math.abs(b) - Math.abs(a));
  if (known.length && known[0][0]) {
    const [[v, l, h], next] = known, measured = data.matters.startsWith("ablat");
    const after = next ? `; the next is ${headName(next[1], next[2])} (${signed(next[0])})` : "";
    said.push(measured
      ? `Without ${headName(l, h)}, ${data.of} ${v > 0 ? "rises" : "falls"} by ${brief(Math.abs(v))}, the most of ${known.length} heads${after}.`
      : `By ${data.matters}, ${headName(l, h)} is the largest of ${known.length} (${signed(v)})${after}.`);
    const looks = Object.keys(LOOKS).map(stat => [Number(own(data.stats, stat)?.[l][h]), stat])
      .filter(([share]) => share >= .3).sort(([a], [b]) => b - a)[0];
    if (looks) said.push(`It gives ${Math.round(100 * looks[0])} % of its attention to ${LOOKS[looks[1]]}.`);
  }
  const edges = data.flow ? data.flow.edges : [], isHead = node => data.flow.nodes[node][2] >= 0;
  const edge = edges.find(([u, v]) => isHead(u) && isHead(v));
  if (edge) said.push(`The largest edge between heads${data.flow.method === "cut" ? "" : ", to first order"}: ${inWords(...edge)}.`);
  $("finding").hidden = !said.length;
  fill("finding", said.join(" "));
}
