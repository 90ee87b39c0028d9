// ---- the gradient's way back through the head: dz → dP → dS → dq, dk → the weights, a card for each step
const CARDS = [
  { name: "dz", formula: "dz = dy W_Oᵀ", by: "query",
    says: "What arrives: the part of the gradient that lies along what this head can write." },
  { name: "dv", formula: "dv = Pᵀ dz", by: "key",
    says: "One way to change z = P v: other values. Each key has a part in this in proportion to how much it is read." },
  { name: "dP", formula: "dP = dz vᵀ", map: true,
    says: `The other way: another pattern. How ${data.of} would rise if a query read more of a key. (Its size is that of ` +
      "the cells that a query sees.)" },
  { name: "dS", formula: "dS = P ⊙ (dP − D), D = Σ P dP", map: true,
    says: "Through the softmax: a row of P always sums to 1, so only the difference from the row's mean D gets through, "
      + "and only where P is not 0. Where one key has all the weight, nothing passes." },
  { name: "dq", formula: "dq = s dS k", by: "query", says: "A step of training moves each query against this: towards the keys whose scores should rise." },
  { name: "dk", formula: "dk = s dSᵀ q", by: "key", says: "And each key towards the queries that should see more of it." },
  { name: "dW", formula: "dW_Q = xᵀ dq, dW_K = xᵀ dk, dW_V = xᵀ dv, dW_O = zᵀ dy", weights: true,
    says: "Sums over all tokens of all sequences: the part of a single token can no longer be seen." },
];
const strip = CARDS.map(card => {
  const size = el("b"), canvas = el("canvas", { role: "img" }), list = el("p", { className: "value" });
  const element = el("div", { className: "card" }, el("div", {}, el("b", { textContent: card.name + " " }), size),
    el("code", { textContent: card.formula }), canvas, list, el("p", { textContent: card.says }));
  $("strip").append(element);
  return { ...card, size, canvas, list };
});
function showStrip() {
  const layer = layers[state.layer], names = layer.byToken.map(([name]) => name);
  let any = false;
  for (const { name, by, map, weights, size, canvas, list } of strip) {
    const values = by && names.includes(name) ? byToken(name) : null, has = map && layer.kinds.includes(name);
    const dW = weights ? ["dW_Q", "dW_K", "dW_V", "dW_O"].filter(w => own(data.stats, w)) : [];
    any = any || !!values || has;
    canvas.hidden = !values; list.hidden = !dW.length;
    const norm = values ? Math.hypot(...values) : has ? numbers(state.layer, state.head, name).norm : NaN;
    size.textContent = isNaN(norm) ? "" : `‖${name}‖ = ${brief(norm)}`;
    list.textContent = dW.map(w => `|${w}| ${brief(Number(data.stats[w][state.layer][state.head]))}`).join(" · ");
    if (values) drawSizes(canvas, values, by, name);
  }
  $("backward").hidden = !any;
}
function drawSizes(canvas, values, by, name) {  // a bar for each query or key, with a mark on the cell's or the pin's
  const ratio = devicePixelRatio, width = canvas.clientWidth * ratio, height = canvas.clientHeight * ratio;
  const top = Math.max(...values.filter(isFinite), 0), side = by === "query" ? 0 : 1, step = width / values.length;
  const at = state.cell ? state.cell[side] : side ? null : state.pin, context = canvas.getContext("2d");
  canvas.width = width; canvas.height = height;
  values.forEach((v, i) => {
    context.fillStyle = style(i === at ? "--mark" : "--accent");
    const h = isFinite(v) && top ? v / top * height : 0;
    context.fillRect(i * step, height - h, Math.max(step - (step > 3 * ratio ? ratio : 0), 1), h);
  });
  const i = values.indexOf(top);
  canvas.ariaLabel = canvas.title = `|${name}| of each ${by}` + (i < 0 ? ""
    : `; the largest, ${brief(top)}, is that of ${by} ${token(side, i)} (${i})`);
  canvas.onclick = event => {
    const i = clamp(Math.floor(event.offsetX * ratio / step), 0, values.length - 1);
    if (!side) set({ pin: i });
  };
}
