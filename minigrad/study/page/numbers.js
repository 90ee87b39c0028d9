// The report's script is four files joined into one. This is the first: reading the numbers, and colouring them.
"use strict";
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent), arrays = $("arrays").textContent, { layers, steps } = data;
const state = { layer: 0, head: 0, sequence: 0, snapshot: steps.length - 1, gradient: "", root: true,
                cell: null, pin: null };  // cell: the [query, key] that is pointed at; pin: a query

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
const cut = (text, n = 14) => [...text].length > n ? [...text].slice(0, n - 1).join("") + "…" : text;
const each = f => layers.forEach((layer, l) => layer.heads.forEach((head, h) => f(l, h, head)));
const full = (l, h) => `${layers[l].path} · head ${layers[l].heads[h]}`;

// ---- numbers: base64 of little-endian float16, of equal length for all heads of a layer, decoded when first needed
const HALF = Float32Array.from({ length: 65536 }, (_, i) => {
  const sign = i >> 15 ? -1 : 1, exponent = i >> 10 & 31, fraction = i & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
});
let total = 0;  // how many characters a snapshot takes
for (const layer of layers) {
  layer.size = Math.ceil(data.sequences * layer.queries * layer.keys * 2 / 3) * 4;
  layer.offset = total;
  total += layer.size * layer.kinds.length * layer.heads.length;
}
const decoded = new Map();
function numbers(l, h, kind) {
  const { queries: rows, keys: columns, kinds, heads, size, offset } = layers[l], n = rows * columns;
  const start = state.snapshot * total + offset + (kinds.indexOf(kind) * heads.length + h) * size;
  if (!decoded.has(start)) {
    const text = atob(arrays.substring(start, start + size)), bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    decoded.set(start, new Uint16Array(bytes.buffer));
  }
  const codes = decoded.get(start).subarray(state.sequence * n, (state.sequence + 1) * n);
  const scale = data.scales[state.snapshot][l][kind][h];
  let top = 0;
  for (const code of codes) { const a = Math.abs(HALF[code]); if (a > top && a < Infinity) top = a; }
  return { codes, rows, columns, top, max: top * scale, signed: kind !== "pattern",
           at: (q, k) => HALF[codes[q * columns + k]] * scale };
}
// The text of query (side 0) or key (side 1) number i of the current layer.
const token = (side, i) => {
  const { tokens } = layers[state.layer];
  return tokens ? data.tokens[tokens[side]][state.sequence][i] : String(i);
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

// Draws `view` as w × h pixels on `canvas`. If a pixel covers several cells, it shows the one of largest size.
function paint(canvas, { codes, rows, columns, top, signed }, w = columns, h = rows, root = state.root) {
  canvas.width = w; canvas.height = h;
  const largest = new Float32Array(w * h);
  for (let q = 0, i = 0; q < rows; q++) {
    const row = Math.floor(q * h / rows) * w;
    for (let k = 0; k < columns; k++, i++) {
      const j = row + Math.floor(k * w / columns), v = HALF[codes[i]];
      if (!(Math.abs(v) <= Math.abs(largest[j]))) largest[j] = v;
    }
  }
  const context = canvas.getContext("2d"), image = context.createImageData(w, h);
  largest.forEach((v, j) => {
    const [r, g, b] = colour(v && v / top, signed, root), p = 4 * j;
    image.data[p] = r; image.data[p + 1] = g; image.data[p + 2] = b; image.data[p + 3] = 255;
  });
  context.putImageData(image, 0, 0);
}
