// ---- the state: set() makes all changes to it, except to the cell, and updates the page
const maps = [new Heatmap("pattern"), new Heatmap("gradient")];
const gradients = [...new Set(layers.flatMap(layer => layer.kinds.slice(1)))];
state.gradient = gradients[0] || "";
const toggles = (place, key, options) => options.map(([value, textContent]) => {
  const button = el("button", { textContent, onclick: () => set({ [key]: value }) });
  $(place).append(button);
  return () => button.ariaPressed = state[key] === value;
});
const pressed = [...toggles("gradients", "gradient", gradients.map(kind => [kind, kind])),
                 ...toggles("shades", "root", [[true, "root"], [false, "linear"]])];
let painted = "", saving;
function set(change) {
  Object.assign(state, change);
  const layer = layers[state.layer], [q, k] = state.cell || [0, 0];
  state.head = clamp(state.head, 0, layer.heads.length - 1);
  if (state.pin >= layer.queries) state.pin = null;
  if (q >= layer.queries || k >= layer.keys) state.cell = null;
  if (painted !== (painted = `${state.snapshot} ${state.sequence} ${dark.matches} ${devicePixelRatio}`)) paintThumbs();
  $("name").textContent = full(state.layer, state.head);
  $("step").textContent = $("scrubber").ariaValueText = stepName(state.snapshot);
  $("scrubber").value = state.snapshot; $("sequence").value = state.sequence;
  pressed.forEach(show => show());
  thumbs.flat().forEach(thumb => { thumb.ariaCurrent = false; thumb.tabIndex = -1; });  // the grid is one tab stop
  const thumb = thumbs[state.layer][state.head], picker = $("picker");
  thumb.ariaCurrent = true; thumb.tabIndex = 0;
  if ($("thumbs").contains(document.activeElement)) thumb.focus({ preventScroll: true });
  const box = picker.getBoundingClientRect(), inner = thumb.getBoundingClientRect();  // scrolls the box, not the page
  picker.scrollTop += Math.max(0, inner.bottom + 4 - box.bottom) - Math.max(0, box.top + 24 - inner.top);
  picker.scrollLeft += Math.max(0, inner.right + 4 - box.right) - Math.max(0, box.left + 24 - inner.left);
  maps[0].load("pattern"); maps[1].load(state.gradient);
  for (const show of [read, showPinned, drawLoss, ...charts]) show();
  clearTimeout(saving);  // after a pause, since browsers refuse an address that changes many times a second
  saving = setTimeout(() => history.replaceState(null, "", "#" + new URLSearchParams({ layer: layer.path,
    head: layer.heads[state.head], sequence: state.sequence, snapshot: state.snapshot })), 100);
}
function restore() {  // the state that the address asks for, as far as this report has it
  const wanted = new URLSearchParams(location.hash.slice(1)), l = layers.findIndex(x => x.path === wanted.get("layer"));
  const change = l < 0 ? {} : { layer: l, head: Math.max(0, layers[l].heads.indexOf(Number(wanted.get("head")))) };
  for (const [key, n] of [["sequence", data.sequences], ["snapshot", steps.length]])
    if (/^\d+$/.test(wanted.get(key)) && wanted.get(key) < n) change[key] = Number(wanted.get(key));
  set(change);
}
const flip = by => { const n = layers[state.layer].heads.length; set({ head: (state.head + by + n) % n }); };
const climb = by => {  // to the head of the same number in another layer, or the last one before it
  const l = (state.layer + by + layers.length) % layers.length, head = layers[state.layer].heads[state.head];
  set({ layer: l, head: Math.max(0, layers[l].heads.findLastIndex(other => other <= head)) });
};
const scrub = snapshot => { play(false); set({ snapshot: clamp(snapshot, 0, steps.length - 1) }); };
const back = () => scrub(state.snapshot - 1), forth = () => scrub(state.snapshot + 1);
const keys = { ArrowLeft: () => flip(-1), ArrowRight: () => flip(1), ArrowUp: () => climb(-1),
               ArrowDown: () => climb(1), "[": back, ",": back, "]": forth, ".": forth,
               Escape: () => set({ pin: null }) };
addEventListener("keydown", event => {
  const own = event.key.startsWith("Arrow") && event.target.closest("input, select");
  if (!keys[event.key] || own || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  keys[event.key]();
});
for (const way of ["Left", "Right", "Up", "Down"]) $(way.toLowerCase()).onclick = keys["Arrow" + way];
$("scrubber").max = steps.length - 1;
$("scrubber").oninput = event => scrub(Number(event.target.value));
$("play").onclick = () => {
  if (!timer && state.snapshot === steps.length - 1) set({ snapshot: 0 });
  play(!timer);
};
$("loss").onclick = event => {
  const far = s => steps[s] === null ? Infinity : Math.abs(across(steps[s]) - event.offsetX);
  scrub(steps.reduce((best, _, s) => far(s) < far(best) ? s : best, state.snapshot));
};
for (let b = 0; b < data.sequences; b++) {
  const words = layers[0].tokens ? data.tokens[layers[0].tokens[0]][b] : [];
  const text = words.length ? ": " + cut(words.join(words.some(t => t.includes("␣")) ? "" : " "), 24) : "";
  $("sequence").append(el("option", { value: b, textContent: b + text }));
}
$("sequence").onchange = event => set({ sequence: Number(event.target.value) });

const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`, about = [counted(layers.length, "layer"),
  counted(thumbs.flat().length, "head"), counted(data.sequences, "sequence")];
if (steps.length > 1) about.push(counted(steps.length, "snapshot"));
else if (steps[0] !== null) about.push(stepName(0));
$("about").textContent = about.join(" · ");
$("loss").hidden = !curve.length; $("sequences").hidden = data.sequences < 2; $("gradients").hidden = !gradients.length;
$("meaning").hidden = !gradients.includes("dP");
for (const id of ["scrubber", "play", "step", "stepkeys"]) $(id).hidden = steps.length < 2;
document.querySelector(".columns").classList.toggle("many", thumbs.flat().length > 100);
document.querySelector(".maps").classList.toggle("single", !gradients.length);
mix();
restore();
addEventListener("hashchange", restore);
dark.onchange = () => { mix(); set({}); };
addEventListener("resize", () => set({}));  // zooming in the browser fires this too
// For scripts and tests: what is shown, and where in the window a cell of a map ("pattern" or "gradient") is.
window.heads = Object.freeze({
  state: () => ({ ...state, layer: layers[state.layer].path, head: layers[state.layer].heads[state.head] }),
  cell: (map, q, k) => {
    const { canvas, box } = maps[map === "pattern" ? 0 : 1], at = canvas.getBoundingClientRect();
    const x = box.left + (k + .5) * box.size, y = box.above + (q + .5) * box.size;
    return [at.left + x / devicePixelRatio, at.top + y / devicePixelRatio];
  },
});
