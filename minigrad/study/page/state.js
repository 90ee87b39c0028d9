// ---- the state: set() changes it and updates the page; only point() changes the cell
const maps = [new Heatmap("pattern"), new Heatmap("gradient")];
const gradients = [...new Set(layers.flatMap(layer => layer.kinds.slice(1)))];
state.gradient = gradients[0] || "";
const toggles = (place, key, options) => options.map(([value, textContent]) => {
  const button = el("button", { textContent, onclick: () => set({ [key]: value }) });
  $(place).append(button);
  return () => button.ariaPressed = state[key] === value;
});
const pressed = [...toggles("gradients", "gradient", gradients.map(kind => [kind, kind])),
                 ...toggles("shades", "root", [[true, "root"], [false, "linear"]]),
                 ...toggles("marks", "marked", [["loss", "the loss"], ["gate", "this head's gradient"]]),
                 ...toggles("edges", "part", [[null, "this head"], ["all", "all"]])];
let painted = "";
function set(change) {
  if ("head" in change && !("part" in change) && state.part !== "all") state.part = null;
  Object.assign(state, change);
  const layer = layers[state.layer], [q, k] = state.cell || [0, 0];
  state.head = clamp(state.head, 0, layer.heads.length - 1);
  if (state.pin >= layer.queries) state.pin = null;
  if (state.prediction >= layer.queries || !layer.byPrediction.length || state.marked !== "gate") state.prediction = null;
  if (q >= layer.queries || k >= layer.keys) state.cell = state.held = null;
  $("name").textContent = headName(state.layer, state.head);
  $("name").title = layer.path;
  if (arrays) show();
}
function show() {
  const inGrid = $("thumbs").contains(document.activeElement);
  const look = `${state.sequence} ${dark.matches} ${devicePixelRatio}`;
  if (painted !== (painted = look)) paintThumbs();
  $("sequence").value = state.sequence;
  pressed.forEach(press => press());
  thumbs.flat().forEach(thumb => { thumb.ariaCurrent = false; thumb.tabIndex = -1; });  // the grid is one tab stop
  const thumb = thumbs[state.layer][state.head], picker = $("thumbs");
  thumb.ariaCurrent = true; thumb.tabIndex = 0;
  if (inGrid) thumb.focus({ preventScroll: true });
  const box = picker.getBoundingClientRect(), inner = thumb.getBoundingClientRect();  // scrolls the box, not the page
  picker.scrollTop += Math.max(0, inner.bottom + 4 - box.bottom) - Math.max(0, box.top + 24 - inner.top);
  picker.scrollLeft += Math.max(0, inner.right + 4 - box.right) - Math.max(0, box.left + 24 - inner.left);
  maps[0].load("pattern"); maps[1].load(state.gradient);
  for (const part of [read, showFinding, showPinned, showText, showStrip, showFlow, showHistory, ...charts]) part();
}
function headToOpen() {  // the head that matters most, or the first if that is not known
  const raw = data.matters && own(data.stats, data.matters);
  let found = { layer: 0, head: 0 }, top = -1;
  if (raw) each((l, h) => {
    const v = Math.abs(Number(raw[l][h]));
    if (v > top) { top = v; found = { layer: l, head: h }; }
  });
  return found;
}
const flip = by => { const n = layers[state.layer].heads.length; set({ head: (state.head + by + n) % n }); };
const climb = by => {  // to the head of the same number in another layer, or the nearest lower number
  const l = (state.layer + by + layers.length) % layers.length, head = layers[state.layer].heads[state.head];
  set({ layer: l, head: Math.max(0, layers[l].heads.findLastIndex(other => other <= head)) });
};
const keys = { ArrowLeft: () => flip(-1), ArrowRight: () => flip(1), ArrowUp: () => climb(-1),
               ArrowDown: () => climb(1), Escape: release };
addEventListener("keydown", event => {
  const mine = event.key.startsWith("Arrow") && event.target.closest("input, select");
  if (!own(keys, event.key) || mine || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  keys[event.key]();
});
for (const way of ["Left", "Right", "Up", "Down"]) $(way.toLowerCase()).onclick = keys["Arrow" + way];
for (let b = 0; b < data.sequences; b++) {
  const words = layers[0].tokens ? data.tokens[layers[0].tokens[0]][b] : [];
  const text = words.length ? ": " + cut(words.join(words.some(t => t.includes("␣")) ? "" : " "), 24) : "";
  $("sequence").append(el("option", { value: b, textContent: b + text }));
}
$("sequence").onchange = event => set({ sequence: Number(event.target.value) });

const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`, about = [counted(layers.length, "layer"),
  counted(thumbs.flat().length, "head"), counted(data.sequences, "sequence")];
$("about").textContent = window.DecompressionStream ? about.join(" · ")
  : "This browser cannot unpack the numbers: it has no DecompressionStream.";
document.querySelectorAll(".of").forEach(span => span.textContent = data.of);
$("marks").hidden = !layers.some(layer => layer.byPrediction.length);
$("sequences").hidden = data.sequences < 2; $("gradients").hidden = !gradients.length;
document.querySelector(".maps").classList.toggle("single", !gradients.length);
mix();
set(headToOpen());
document.body.ariaBusy = true;
unpack().then(() => { document.body.ariaBusy = false; set({}); });
dark.onchange = () => { mix(); set({}); };
addEventListener("resize", () => set({}));  // zooming in the browser is a resize too
// For scripts and tests: the state, and the place in the window of a cell of a map ("pattern" or "gradient").
window.heads = Object.freeze({
  state: () => ({ ...state, layer: layers[state.layer].path, head: layers[state.layer].heads[state.head] }),
  cell: (map, q, k) => {
    const { canvas, box } = maps[map === "pattern" ? 0 : 1], at = canvas.getBoundingClientRect();
    const x = box.left + (k + .5) * box.size, y = box.above + (q + .5) * box.size;
    return [at.left + x / devicePixelRatio, at.top + y / devicePixelRatio];
  },
});
