// The report's script is several files joined into one. This is the first: it unpacks the numbers, and colours them.
"use strict";
// data.of is what is differentiated, in words: "the loss", or what to_html was given as `of`.
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent), { layers } = data;
// cell: the [query, key] that is read, held: the one that was clicked last, pin: the query whose rows are shown,
// prediction: the one whose part of dS is shown, or null for all; marked: what the text is shaded by, "loss" or "gate".
// part: the node of the flow whose edges are shown, "all", or null for the head on display.
const state = { layer: 0, head: 0, sequence: 0, gradient: "", root: true, part: null, cell: null, held: null, pin: null,
                prediction: null, marked: "loss" };

// An element. Text from the data is only ever passed to append or textContent, so that it stays text.
const el = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const small = textContent => el("small", { textContent });
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const format = (v, digits = 4) => {
  const a = Math.abs(v);
  return v === 0 ? "0" : isNaN(v) ? "–" : a >= 1e-3 && a < 1e5 ? v.toPrecision(digits)
    : isFinite(v) ? v.toExponential(digits - 1) : String(v);
};
const brief = v => v === 0 || Math.abs(v) >= .01 && Math.abs(v) < 1e4 ? String(+v.toPrecision(3)) : v.toExponential(1);
const signed = v => (v > 0 ? "+" : v < 0 ? "−" : "") + brief(Math.abs(v));
const cut = (text, n = 14) => [...text].length > n ? [...text].slice(0, n - 1).join("") + "…" : text;
const each = f => layers.forEach((layer, l) => layer.heads.forEach((head, h) => f(l, h, head)));
const headName = (l, h) => `head ${layers[l].name}.${layers[l].heads[h]}`;  // "head 0.3"
// Replaces the content of an element, but only if the text differs: else a screen reader would read it out again.
const fill = (id, ...children) => {
  const now = el("div", {}, ...children);
  if (now.textContent !== $(id).textContent) $(id).replaceChildren(...now.childNodes);
};
const extent = values => values.reduce(([low, high], v) => isFinite(v) ? [Math.min(low, v), Math.max(high, v)]
  : [low, high], [0, 0]);  // the lowest and the highest of the finite values and 0
const own = (object, key) => Object.hasOwn(object, key) ? object[key] : undefined;

// ---- the arrays: float32, one after the other, deflated and in base64
let arrays = null;
async function unpack() {
  const packed = Uint8Array.from(atob($("numbers").textContent), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  arrays = new Float32Array(await new Response(stream).arrayBuffer());
}
// The start of each of a layer's arrays: kinds (for each sequence and head, its cells or blocks of cells), which cells are
// seen (if there are blocks), sizes by token, parts by prediction.
const SEEN = "seen";
let end = 0;
for (const layer of layers) {
  const n = data.sequences * layer.heads.length, blocksAlong = (length, side) => Math.ceil(length / side);
  const cells = layer.blocks.map(side => blocksAlong(layer.queries, side) * blocksAlong(layer.keys, side));
  layer.at = new Map(); layer.cells = cells;
  layer.before = cells.map((_, h) => cells.slice(0, h).reduce((a, b) => a + b, 0));  // of the heads before this one
  layer.perSequence = cells.reduce((a, b) => a + b, 0);
  for (const kind of layer.kinds) {
    layer.at.set(kind, end);
    end += data.sequences * layer.perSequence;
  }
  if (layer.blocks.some(side => side > 1)) {
    layer.at.set(SEEN, end);
    end += data.sequences * layer.queries * layer.keys;
  }
  for (const [name, size] of [...layer.byToken, ...layer.byPrediction]) {
    layer.at.set(name, end);
    end += n * size;
  }
}
// A head's map of a kind in the current sequence, all cells: those of a block have its mean.
function cellsOf(l, h, kind) {
  const { at, perSequence, before, cells, blocks, queries, keys } = layers[l], side = blocks[h];
  const start = at.get(kind) + state.sequence * perSequence + before[h], values = arrays.subarray(start, start + cells[h]);
  if (side === 1) return values;
  const wide = Math.ceil(keys / side), whole = new Float32Array(queries * keys);
  for (let q = 0; q < queries; q++) for (let k = 0; k < keys; k++)
    whole[q * keys + k] = values[Math.floor(q / side) * wide + Math.floor(k / side)];
  return whole;
}
// 1 for each cell that no head of the layer sees, in the current sequence.
function hiddenCells(l) {
  const { at, heads, queries, keys } = layers[l], n = queries * keys;
  if (at.has(SEEN)) {
    const start = at.get(SEEN) + state.sequence * n;
    return arrays.subarray(start, start + n).map(seen => seen ? 0 : 1);
  }
  const patterns = heads.map((_, i) => cellsOf(l, i, "pattern"));
  return patterns[0].map((_, j) => patterns.some(pattern => pattern[j]) ? 0 : 1);
}
const part = (l, h, name, n) => {  // the n numbers of a head in the current sequence
  const start = layers[l].at.get(name) + (state.sequence * layers[l].heads.length + h) * n;
  return arrays.subarray(start, start + n);
};
// The part of a head's gate_grad from each prediction of the current sequence; undefined if it was not traced.
const gates = (l, h) => layers[l].byPrediction.length ? part(l, h, GATE, layers[l].queries) : undefined;
const GATE = "gate_grad by prediction", SCORES = "dS by prediction";
// The dS of a head that comes from state.prediction alone; undefined if the page does not have it.
function scoresOfPrediction(l, h) {
  const { queries, keys, predictionOf } = layers[l], of = predictionOf ? predictionOf[state.sequence][h] : [];
  const i = of.indexOf(state.prediction), n = queries * keys;
  return i < 0 ? undefined : part(l, h, SCORES, of.length * n).subarray(i * n, (i + 1) * n);
}
// A head's numbers of a kind, in the current sequence. Cells to which no head gives a weight are hidden.
const views = new Map();
function numbers(l, h, kind) {
  const one = kind === "dS" && state.prediction !== null;
  const key = `${l} ${h} ${kind} ${state.sequence} ${one ? state.prediction : ""}`;
  if (views.has(key)) return views.get(key);
  const { queries: rows, keys: columns, blocks } = layers[l], n = rows * columns, side = one ? 1 : blocks[h];
  const values = !one ? cellsOf(l, h, kind) : scoresOfPrediction(l, h) || new Float32Array(n).fill(NaN);
  const hidden = hiddenCells(l);
  let top = 0, squares = 0;
  values.forEach((v, j) => {
    if (hidden[j]) return;
    squares += v * v;
    if (isFinite(v)) top = Math.max(top, Math.abs(v));
  });
  const view = { values, hidden, rows, columns, top, side, signed: kind !== "pattern",
                 norm: isFinite(squares) && side === 1 ? Math.sqrt(squares) : NaN, at: (q, k) => values[q * columns + k],
                 hides: (q, k) => hidden[q * columns + k] === 1 };
  if (views.size > 200) views.clear();
  views.set(key, view);
  return view;
}
// The sizes of a gradient by token, such as dq: one number for each query or key of the current sequence.
const byToken = name => {
  const [, length] = layers[state.layer].byToken.find(([other]) => other === name);
  return [...part(state.layer, state.head, name, length)];
};
// The text of query (side 0) or key (side 1) number i of the current layer.
const token = (side, i) => {
  const { tokens } = layers[state.layer];
  return tokens ? cut(data.tokens[tokens[side]][state.sequence][i], 200) : String(i);
};

// ---- colours: from a fraction (-1 to 1) of the largest value; its square root shows small values beside a large one
const SCALES = {
  light: [["#ffffff", "#c9dcf2", "#7fb0de", "#3a78ba", "#17457f", "#0a2347"],
          ["#075049", "#35978f", "#a5d6cf", "#ffffff", "#f0c9a0", "#cf7a2c", "#6f3806"], [255, 0, 200]],
  dark: [["#171d26", "#1d3f66", "#2a6aa6", "#58a0da", "#a6d3f5", "#f2f9ff"],
         ["#8ff0e0", "#2fa396", "#1d4f4d", "#171d26", "#5d3c1c", "#c77c2e", "#ffd9a3"], [255, 80, 220]],
};
const dark = matchMedia("(prefers-color-scheme: dark)");
let tables;
function mix() {
  const rgb = c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16));
  const table = stops => Array.from({ length: 513 }, (_, i) => {  // an odd number of colours: 0 is exactly in the middle
    const x = i / 512 * (stops.length - 1), j = Math.min(Math.floor(x), stops.length - 2), b = rgb(stops[j + 1]);
    return rgb(stops[j]).map((a, c) => Math.round(a + (b[c] - a) * (x - j)));
  });
  const [pattern, gradient, bad] = SCALES[dark.matches ? "dark" : "light"];
  tables = { false: table(pattern), true: table(gradient), bad };
}
function colour(part, signed, root = state.root) {
  if (!isFinite(part)) return tables.bad;
  const x = clamp(root ? Math.sign(part) * Math.sqrt(Math.abs(part)) : part, -1, 1);
  return tables[signed][Math.round((signed ? (x + 1) / 2 : Math.max(x, 0)) * 512)];
}
const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;
const inkOn = rgb => {  // black or white, whichever contrasts more: by the relative luminance of WCAG 2
  const [r, g, b] = rgb.map(v => v <= 10 ? v / 3294.6 : ((v / 255 + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b > .179 ? "#000" : "#fff";
};

// Draws a view on `canvas`, a pixel for each cell. Cells that are hidden are left clear.
function paint(canvas, { values, hidden, rows, columns, top, signed }) {
  canvas.width = columns; canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  values.forEach((v, j) => { if (!hidden[j]) image.data.set([...colour(v && v / top, signed), 255], 4 * j); });
  context.putImageData(image, 0, 0);
}
