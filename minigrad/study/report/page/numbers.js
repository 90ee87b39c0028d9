// The report's script is several files joined into one. This is the first: unpacking the numbers, and colouring them.
"use strict";
// data.of says what is differentiated: "the loss", or what was given instead.
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent), { layers, steps } = data;
layers.forEach((layer, l) => layer.kinds = data.kinds[l]);
const chunks = document.querySelectorAll('script[type="text/plain"]');  // thumbnails and all layers of each snapshot
const state = { layer: 0, head: 0, sequence: 0, snapshot: steps.length - 1, gradient: "", root: true, lines: false,
                order: "", zoom: 1, part: null, curve: "",
                cell: null, pin: null };  // cell: the [query, key] that is pointed at; pin: a query; part: whose edges

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
const full = (l, h) => `${layers[l].path || "the layer"} · head ${layers[l].heads[h]}`;
// Replaces what an element holds, but only if it says something else now: else a screen reader would read it out again.
const fill = (id, ...children) => {
  const now = el("div", {}, ...children);
  if (now.textContent !== $(id).textContent) $(id).replaceChildren(...now.childNodes);
};
const extent = values => values.reduce(([low, high], v) => isFinite(v) ? [Math.min(low, v), Math.max(high, v)]
  : [low, high], [0, 0]);  // of the finite ones and 0
const own = (object, key) => Object.hasOwn(object, key) ? object[key] : undefined;

// ---- chunks: base64 of what was deflated (see packed.py), unpacked when first needed and then kept for a while
const HALF = Float32Array.from({ length: 65536 }, (_, i) => {
  const sign = i >> 15 ? -1 : 1, exponent = i >> 10 & 31, fraction = i & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction) / 2 ** 15;
});
const unpacked = new Map(), KEPT = 64;  // the bytes of the chunks used last
async function unpack(i) {
  if (unpacked.has(i)) return;
  const text = atob(chunks[i].textContent), packed = Uint8Array.from(text, c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  unpacked.set(i, { bytes: new Uint8Array(await new Response(stream).arrayBuffer()) });
}
const place = (snapshot, l) => snapshot * (layers.length + 1) + 1 + l;  // of a layer's chunk
const ready = () => unpacked.has(place(state.snapshot, state.layer)) && unpacked.has(place(state.snapshot, -1));
async function unpackShown() {
  const wanted = [place(state.snapshot, state.layer), place(state.snapshot, -1)];
  for (const i of unpacked.keys()) if (unpacked.size > KEPT && !wanted.includes(i)) unpacked.delete(i);
  await Promise.all(wanted.map(unpack));
}
// What stands where in the chunk of a layer: a bit for each cell, then the codes of the cells that some head sees.
function contents(l) {
  const chunk = unpacked.get(place(state.snapshot, l));
  if (chunk.starts) return chunk;
  const { queries, keys, kinds, heads, byToken } = layers[l], n = queries * keys, bytes = chunk.bytes;
  chunk.starts = [0];  // how many cells are seen in all sequences before one
  for (let b = 0, i = 0, count = 0; b < data.sequences; b++) {
    for (let j = 0; j < n; j++, i++) count += bytes[i >> 3] >> (i & 7) & 1;
    chunk.starts.push(count);
  }
  const codes = Math.ceil(data.sequences * n / 8), size = chunk.starts.at(-1) * width;  // of a head's numbers
  chunk.codes = (kind, h) => codes + (kinds.indexOf(kind) * heads.length + h) * size;
  let at = codes + kinds.length * heads.length * size;
  chunk.tokens = {};
  for (const [name, length] of byToken) {
    chunk.tokens[name] = { at, length };
    at += heads.length * data.sequences * length * 2;
  }
  return chunk;
}
const width = data.precision ? 1 : 2;  // bytes of a number
const half = (bytes, at) => HALF[bytes[at] | bytes[at + 1] << 8];
const coarse = code => {  // a byte: the root of a fraction, in so many steps, with its sign
  const c = code << 24 >> 24;
  return c === -128 ? NaN : Math.sign(c) * (c / data.precision) ** 2;
};
// A head's numbers of a kind, in the current sequence, as fractions of the head's largest; 0 where nothing is seen.
const views = new Map();
function numbers(l, h, kind) {
  const key = `${state.snapshot} ${l} ${h} ${kind} ${state.sequence}`;
  if (views.has(key)) return views.get(key);
  const { queries: rows, keys: columns } = layers[l], n = rows * columns, chunk = contents(l), { bytes } = chunk;
  const first = state.sequence * n, peak = data.peaks[state.snapshot][l][kind][h];
  const part = new Float32Array(n), hidden = new Uint8Array(n);
  let at = chunk.codes(kind, h) + chunk.starts[state.sequence] * width, top = 0, largest = -1, squares = 0, strange = 0;
  for (let j = 0, i = first; j < n; j++, i++) {
    if (!(bytes[i >> 3] >> (i & 7) & 1)) { hidden[j] = 1; continue; }
    const v = part[j] = width === 2 ? half(bytes, at) : coarse(bytes[at]), a = Math.abs(v);
    at += width; squares += v * v;
    if (a > top && a < Infinity) { top = a; largest = j; }
    if (!isFinite(v)) strange++;
  }
  const view = { part, hidden, rows, columns, top, max: top * peak, signed: kind !== "pattern",
                 largest: largest < 0 ? null : [Math.floor(largest / columns), largest % columns],
                 strange, norm: strange ? NaN : Math.sqrt(squares) * peak,
                 at: (q, k) => { const v = part[q * columns + k]; return isFinite(v) ? v * peak : v; },
                 hides: (q, k) => hidden[q * columns + k] === 1 };
  if (views.size > 200) views.clear();
  views.set(key, view);
  return view;
}
// The sizes of a gradient by token, such as dq: one number for each query or key of the current sequence.
function byToken(name) {
  const chunk = contents(state.layer), { at, length } = chunk.tokens[name];
  const start = at + (state.head * data.sequences + state.sequence) * length * 2;
  const peak = data.tokenPeaks[state.snapshot][state.layer][name][state.head];
  return Array.from({ length }, (_, i) => half(chunk.bytes, start + 2 * i) * peak);
}
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
  const table = stops => Array.from({ length: 513 }, (_, i) => {  // an odd number, so that 0 is exactly in the middle
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

// Draws a view on `canvas`, a pixel for each cell. Cells that are hidden are left clear: the canvas's hatching shows.
function paint(canvas, { part, hidden, rows, columns, top, signed }) {
  canvas.width = columns; canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let j = 0; j < part.length; j++) {
    if (hidden[j]) continue;
    const [r, g, b] = colour(part[j] && part[j] / top, signed), p = 4 * j;
    image.data[p] = r; image.data[p + 1] = g; image.data[p + 2] = b; image.data[p + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
