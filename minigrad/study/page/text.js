// ---- the text, each token shaded by the loss of the prediction made there: a click pins a query
let chips = [], written = "";
function showText() {
  const { queries, tokens } = layers[state.layer], what = `${state.sequence} ${tokens ? tokens[0] : "-" + queries}`;
  if (written !== (written = what)) {
    chips = Array.from({ length: queries }, (_, i) => el("button", { className: "token", textContent: cut(token(0, i), 24),
      role: "option", title: `${token(0, i)} (${i})`, onclick: () => set({ pin: state.pin === i ? null : i }) }));
    $("tokens").replaceChildren(...chips);
  }
  const losses = data.losses && data.losses[state.sequence].length === queries ? data.losses[state.sequence].map(Number) : [];
  const most = Math.max(0, ...(data.losses || []).flat().map(Number).filter(isFinite));
  $("shaded").textContent = losses.length ? `Shaded by the loss of the prediction of the next token, up to ${brief(most)}.` : "";
  chips.forEach((chip, i) => {
    if (losses.length) {
      const shade = colour(losses[i] / (most || 1), false, false);
      Object.assign(chip.style, { background: css(shade), color: inkOn(shade) });
      chip.title = `${token(0, i)} (${i}); the loss of what comes next: ${format(losses[i])}`;
    }
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
