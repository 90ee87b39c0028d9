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
