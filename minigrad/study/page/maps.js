// ---- the two maps
class Heatmap {
  constructor(id) {
    const canvas = this.canvas = el("canvas", { id: id + "-map", tabIndex: 0, role: "application" });
    this.image = el("canvas");  // one pixel for each cell
    this.title = el("span"); this.low = el("small"); this.high = el("small"); this.bar = el("i");
    this.plot = el("div", { className: "plot" }, canvas);
    this.none = el("p", { className: "none muted" });
    this.legend = el("span", { className: "legend" }, this.low, this.bar, this.high);
    this.note = el("small", { className: "note" });
    const axes = el("small", { className: "axes", textContent: id === "pattern" ? "query ↓ key →" : "" });
    $(id).append(el("figcaption", {}, el("span", {}, this.title, axes), this.legend), this.note, this.plot, this.none);
    canvas.onmousedown = event => event.preventDefault();  // a click must not move the focus, which the arrow keys follow
    canvas.onpointermove = event => point(this.cell(event));
    canvas.onpointerleave = event => { if (event.pointerType === "mouse") point(state.held); };
    canvas.onclick = event => {
      point(this.cell(event));
      if (state.cell) set({ pin: state.cell[0], held: state.cell });
    };
    canvas.onfocus = () => state.cell || point([0, 0]);
    canvas.onkeydown = event => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      const [q, k] = state.cell || [0, 0], { queries, keys } = layers[state.layer];
      if (move) point([clamp(q + move[0], 0, queries - 1), clamp(k + move[1], 0, keys - 1)]);
      else if (event.key === "Enter" || event.key === " ") set({ pin: q });
      else return;
      event.preventDefault(); event.stopPropagation();
    };
  }
  load(kind) {
    const one = kind === "dS" && state.prediction !== null, traced = layers[state.layer].kinds.includes(kind);
    const has = traced && !(one && !scoresOfPrediction(state.layer, state.head));
    this.none.textContent = traced ? "The page has no dS of this prediction: only of those that send the head most."
      : "no gradient was traced";
    this.plot.hidden = this.legend.hidden = !has; this.none.hidden = has;
    this.title.textContent = kind === "pattern" || kind === "lesson" ? kind : `gradient ${kind}`;
    const side = has ? numbers(state.layer, state.head, kind).side : 1;
    this.note.textContent = (side > 1 ? `Means of blocks of ${side} × ${side} cells, as the page would be too large: a report with `
      + `--heads ${headName(state.layer, state.head).slice(5)} has each cell. ` : "") + (one ? `Only from the prediction after ${token(0, state.prediction)} (${state.prediction}). ` : "") + this.says(kind, has);
    this.canvas.ariaLabel = `${this.title.textContent}: arrow keys move from cell to cell, Enter pins the query`;
    this.view = has ? numbers(state.layer, state.head, kind) : null;
    if (!has) return;
    paint(this.image, this.view);
    const { signed, top: max } = this.view;
    this.low.textContent = signed ? brief(-max) : "0"; this.high.textContent = brief(max);
    const stops = Array.from({ length: 33 }, (_, i) => css(colour(signed ? i / 16 - 1 : i / 32, signed)));
    this.bar.style.background = `linear-gradient(90deg, ${stops})`;
    this.draw();
  }
  says(kind, has) {
    return !has ? "" : own(SIGNS, kind) || (kind === "pattern" ? "How much of each key a query reads."
      : `Orange: more of it raises ${data.of}. Green: it lowers it.`);
  }
  draw() {
    if (!this.view) return;
    const ratio = devicePixelRatio, context = this.canvas.getContext("2d"), { rows, columns } = this.view;
    const texts = [rows, columns].map((n, side) => Array.from({ length: n }, (_, i) => cut(token(side, i))));
    const type = (size, weight = "") => context.font = `${weight} ${size * ratio}px ${style("--mono")}`;
    type(11);
    const widths = texts.map(side => Math.max(...side.map(text => context.measureText(text).width)));
    // Short labels that are too close for one line alternate between two or three lines, so that all can be shown.
    const room = this.plot.clientWidth * ratio - 5 * ratio, pitch = room / columns;
    const lanes = widths.map(width => width > 22 * ratio || pitch >= 11 * ratio ? 1 : pitch >= 5.5 * ratio ? 2 : 3);
    const left = Math.ceil(widths[0] * lanes[0] + (lanes[0] + 7) * ratio);
    // Cells are whole device pixels, so that all look alike. Small ones may be uneven; below a pixel, the map scrolls.
    let size = Math.min((room - left) / columns, 44 * ratio);
    size = size >= 4 ? Math.floor(size) : Math.max(size, 1);
    const font = clamp(size / ratio * 1.1, ratio < 1.5 ? 9 : 7, 11), wide = widths[1] * font / 11;
    const upright = lanes[1] > 1 || wide <= Math.max(size * .95, 8 * ratio);
    const above = Math.ceil(upright ? (12 * lanes[1] + 5) * ratio : wide + 8 * ratio);
    const width = Math.round(size * columns), height = Math.round(size * rows);
    this.box = { left, above, size };
    this.canvas.width = left + width + 2 * ratio; this.canvas.height = above + height + 2 * ratio;
    this.canvas.style.width = this.canvas.width / ratio + "px";
    this.canvas.style.height = this.canvas.height / ratio + "px";
    context.fillStyle = style("--line");  // the colour of cells that no query sees
    context.fillRect(left, above, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, left, above, width, height);
    const frame = (colour, weight, x, y, w, h, out = 0) => {  // on half pixels: elsewhere a line would cover two pixels
      context.strokeStyle = style(colour); context.lineWidth = Math.max(1, weight * ratio);
      context.strokeRect(Math.round(left + x * size) - .5 - out, Math.round(above + y * size) - .5 - out,
                         Math.round(w * size) + 1 + 2 * out, Math.round(h * size) + 1 + 2 * out);
    };
    const label = (side, i, strong) => {
      const at = (i + .5) * size, text = texts[side][i], lane = strong ? 0 : i % lanes[side];
      context.save();
      type(font, strong ? "bold" : "");
      context.textBaseline = "middle"; context.textAlign = !side ? "right" : upright ? "center" : "left";
      const far = !side ? 5 * ratio + lane * (widths[0] + ratio) : upright ? (9 + 12 * lane) * ratio : 5 * ratio;
      context.translate(side ? left + at : left - far, side ? above - far : above + at);
      if (side && !upright) context.rotate(-Math.PI / 2);
      if (strong) {  // its background hides neighbours that overlap it
        const w = context.measureText(text).width + 4 * ratio, h = (font + 3) * ratio;
        context.fillStyle = style("--bg");
        context.fillRect(!side ? 2 * ratio - w : upright ? -w / 2 : -2 * ratio, -h / 2, w, h);
      }
      context.fillStyle = style(strong ? "--mark" : "--muted");
      context.fillText(text, 0, 0);
      context.restore();
    };
    texts.forEach((side, s) => {  // every n-th label; positions get fewer labels, at round numbers
      const apart = (s && upright ? wide + ratio : font * .86 * ratio) / size / lanes[s];
      const round = [1, 2, 5, 10, 20, 50, 100, 200];
      const every = layers[state.layer].tokens ? Math.ceil(apart) : round.find(n => n >= apart * 1.6) || 500;
      for (let i = 0; i < side.length; i += every) label(s, i, false);
    });
    frame("--line", 1, 0, 0, columns, rows);
    if (state.pin !== null) { frame("--mark", 1.5, 0, state.pin, columns, 1); label(0, state.pin, true); }
    if (!state.cell) return;
    const [q, k] = state.cell;
    context.globalAlpha = .65;
    frame("--mark", 1, 0, q, columns, 1); frame("--mark", 1, k, 0, 1, rows);
    context.globalAlpha = 1;
    frame("--mark", 2, k, q, 1, 1, ratio);  // around the cell, so that its colour stays visible
    label(0, q, true); label(1, k, true);
  }
  cell(event) {
    const rect = this.canvas.getBoundingClientRect(), { left, above, size } = this.box;
    const q = Math.floor(((event.clientY - rect.top) * devicePixelRatio - above) / size);
    const k = Math.floor(((event.clientX - rect.left) * devicePixelRatio - left) / size);
    return q >= 0 && k >= 0 && q < this.view.rows && k < this.view.columns ? [q, k] : null;
  }
}
const SIGNS = {
  lesson: "What a step of training would add to the scores, position by position. Orange: more. Green: less.",
  dS: `Gradient of the scores. Orange: a higher score here raises ${data.of}. Green: it lowers it.`,
  dP: `Gradient of the pattern. Orange: more attention here raises ${data.of}. Green: it lowers it.`,
};

// ---- the cell that is read, and a pinned query: the text, shaded by how much the query attends to each token
function point(cell) {
  if (!arrays || String(cell) === String(state.cell)) return;
  state.cell = cell;
  maps.forEach(map => map.draw());
  read();
  if (arrays) showStrip();
}
const named = (side, i) => [small(side ? "key " : "query "), el("code", { textContent: token(side, i) }),
                            layers[state.layer].tokens ? ` (${i})` : ""];
const says = { dS: "a higher score here", dP: "more attention here" };
const effect = (kind, v) => !v ? "" : kind === "lesson" ? `a step of training ${v > 0 ? "raises" : "lowers"} this score`
  : `${own(says, kind) || "more of it"} ${v > 0 ? "raises" : "lowers"} ${data.of}`;
function read() {
  if (!arrays) return;
  if (!state.cell) return fill("readout", small("Point at a cell to read it. A click holds it."));
  const [q, k] = state.cell, at = kind => numbers(state.layer, state.head, kind);
  const where = el("span", {}, ...named(0, q), " → ", ...named(1, k));
  if (at("pattern").hides(q, k))
    return fill("readout", where, small("No weight here: the mask hides this key, or all weights are rounded to 0."));
  const values = layers[state.layer].kinds.map(kind => el("span", { className: "value" }, small(kind + " "),
    el("b", { textContent: format(at(kind).at(q, k)) })));
  const kind = state.gradient, has = layers[state.layer].kinds.includes(kind);
  fill("readout", where, ...values, small(has ? effect(kind, at(kind).at(q, k)) : ""));
}
function showPinned() {
  const q = state.pin, { kinds, keys } = layers[state.layer], alike = sameText();
  $("pinned").hidden = q === null;
  if (q === null) return;
  const lines = ["pattern", state.gradient].filter(kind => kinds.includes(kind)).flatMap(kind => {
    const view = numbers(state.layer, state.head, kind), row = Array.from({ length: keys }, (_, k) => view.at(q, k));
    const top = Math.max(0, ...row.map(Math.abs).filter(isFinite));
    const chips = row.map((v, k) => {
      const hides = view.hides(q, k), c = colour(v && v / top, view.signed);
      const chip = el("span", { className: `token${alike && k === q ? " self" : ""}${hides ? " unseen" : ""}`,
        textContent: cut(token(1, k), 24), title: `${token(1, k)} (${k}): ${hides ? "not seen" : format(v)}`,
        onpointerenter: () => point([q, k]) });
      if (!hides) Object.assign(chip.style, { background: css(c), color: inkOn(c) });
      return chip;
    });
    const deepest = kind === "pattern" ? `attends to (deepest: ${format(top)})` : `${kind} (deepest: ±${format(top)})`;
    return [small(deepest), el("div", { className: "chips" }, ...chips)];
  });
  const focused = document.activeElement === unpin;
  $("pinned").replaceChildren(el("div", {}, el("span", {}, ...named(0, q)), unpin), ...lines);
  if (focused) unpin.focus();
}
const unpin = el("button", { textContent: "Unpin", onclick: () => {
  const q = state.pin;
  release();
  if (chips[q]) { chips[q].tabIndex = 0; chips[q].focus({ preventScroll: true }); }  // the button, which had the focus, is hidden now
} });
const release = () => {  // unpins the query and the prediction, and lets go of the cell that a click holds
  point(null);
  set({ pin: null, held: null, prediction: null });
};
// True if queries and keys are at the same positions of the same text.
const sameText = () => {
  const { tokens, queries, keys, isCross } = layers[state.layer];
  return queries === keys && !isCross && (!tokens || tokens[0] === tokens[1]);
};
