// ---- the grid of heads: a row for each layer, whose name leaves out what all paths begin or end with
const short = layers.map(({ path }) => path.split("."));
for (const [end, drop] of [[0, "shift"], [-1, "pop"]])
  while (layers.length > 1 && short.every(p => p.length > 1 && p.at(end) === short[0].at(end)))
    short.forEach(p => p[drop]());
const names = short.map(parts => parts.join("."));
const columns = [...new Set(layers.flatMap(layer => layer.heads))].sort((a, b) => a - b), thumbs = layers.map(() => []);
$("thumbs").style.setProperty("--n", columns.length);
$("thumbs").append(small(""), ...columns.map(small));
layers.forEach(({ path }, l) => {
  const label = el("small", { textContent: cut(names[l], 12), title: path });
  label.style.gridArea = `${l + 2} / 1`;
  $("thumbs").append(label);
});
each((l, h, head) => {
  const properties = { ariaLabel: full(l, h), title: full(l, h), onclick: () => set({ layer: l, head: h }) };
  thumbs[l][h] = el("button", properties, el("canvas"));
  thumbs[l][h].style.gridArea = `${l + 2} / ${columns.indexOf(head) + 2}`;
  $("thumbs").append(thumbs[l][h]);
});
function paintThumbs() {
  const of = n => Math.min(n, Math.ceil(54 * devicePixelRatio));
  each((l, h) => {
    const view = numbers(l, h, "pattern");
    paint(thumbs[l][h].firstChild, view, of(view.columns), of(view.rows), true);
  });
}

// ---- bars: a statistic of every head, on one scale for all snapshots, so that bars can be compared between them
const charts = Object.entries(data.stats).map(([name, raw]) => {
  const values = raw.map(snapshot => snapshot.map(layer => layer.map(Number))), all = values.flat(2).filter(isFinite);
  const high = Math.max(0, ...all), low = Math.min(0, ...all), percent = x => x / (high - low || 1) * 100 + "%";
  const caption = el("b"), bars = layers.map(() => []);
  const say = (l, h) => caption.textContent = format(values[state.snapshot][l][h]);
  each((l, h) => bars[l][h] = el("button", { tabIndex: -1, onclick: () => set({ layer: l, head: h }),
                                             onpointerenter: () => say(l, h) }));
  const plot = el("div", { className: "bars", onpointerleave: () => say(state.layer, state.head) },
                  ...bars.map(group => el("div", {}, ...group)));
  const under = names.map((textContent, l) => el("small", { textContent, title: layers[l].path }));
  const scale = small(all.length ? `${brief(low)} … ${brief(high)}` : "no values");
  scale.title = "the range of the bars";
  const title = el("span", { title: Object.hasOwn(data.meanings, name) ? data.meanings[name] : "" }, name + " ", caption);
  $("stats").append(el("figure", {}, el("figcaption", {}, title, scale), plot,
                       el("div", { className: "under" }, ...under)));
  return () => {
    say(state.layer, state.head);
    each((l, h) => {
      const v = values[state.snapshot][l][h], bar = bars[l][h], end = clamp(v, low, high);
      bar.title = bar.ariaLabel = `${full(l, h)}: ${name} ${format(v)}`;
      bar.ariaCurrent = l === state.layer && h === state.head;
      bar.replaceChildren(isNaN(v) ? el("em", { textContent: "–" }) : el("i"));
      if (!isNaN(v)) Object.assign(bar.firstChild.style, { height: percent(Math.abs(end)),
                                                           bottom: percent(Math.min(end, 0) - low) });
    });
  };
});

// ---- training: the loss over the steps, with marks where the snapshots are
const stepName = s => steps[s] === null ? `snapshot ${s + 1} of ${steps.length}` : `step ${steps[s]}`;
const curve = data.losses ? data.losses[0].map((step, i) => [step, Number(data.losses[1][i])]) : [];
let across = x => x;  // from a step to its place in the drawing, in CSS pixels
function drawLoss() {
  if (!curve.length) return;
  const canvas = $("loss"), context = canvas.getContext("2d"), { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = width * devicePixelRatio; canvas.height = height * devicePixelRatio;
  context.scale(devicePixelRatio, devicePixelRatio);
  const ys = curve.map(p => p[1]).filter(isFinite), xs = [...curve.map(p => p[0]), ...steps.filter(s => s !== null)];
  const x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(...ys), y1 = Math.max(...ys);
  const left = 44, right = width - 8, top = 7, bottom = height - 18;
  across = x => left + (x - x0) / (x1 - x0 || 1) * (right - left);
  const write = (text, x, y, textAlign) => Object.assign(context, { textAlign }).fillText(text, x, y);
  Object.assign(context, { font: "11px system-ui, sans-serif", fillStyle: style("--muted"), textBaseline: "middle" });
  if (ys.length) { write(brief(y1), left - 6, top + 1, "right"); write(brief(y0), left - 6, bottom, "right"); }
  write("loss", 0, (top + bottom) / 2, "left");
  write(x0, left, height - 6, "left"); write("step " + x1, right, height - 6, "right");
  context.strokeStyle = style("--line");
  context.strokeRect(left + .5, top - .5, right - left, bottom - top + 1);
  Object.assign(context, { strokeStyle: style("--accent"), lineWidth: 1.2, lineJoin: "round" });
  context.beginPath();
  let gap = true;
  for (const [x, y] of curve) {
    if (isFinite(y)) context[gap ? "moveTo" : "lineTo"](across(x), bottom - (y - y0) / (y1 - y0 || 1) * (bottom - top));
    gap = !isFinite(y);
  }
  context.stroke();
  steps.forEach((step, s) => {
    if (step === null) return;
    const current = s === state.snapshot;
    context.fillStyle = style(current ? "--mark" : "--muted");
    if (current) context.fillRect(across(step) - .75, top - 5, 1.5, bottom - top + 8);
    context.beginPath(); context.arc(across(step), bottom, current ? 4 : 2, 0, 7); context.fill();
  });
  const from = across(steps[0]), to = across(steps.at(-1));  // the scrubber ends below these, where there is room
  const place = { marginLeft: from - 8 + "px", width: to - from + 16 + "px" };
  if (to - from > 150) Object.assign($("scrubber").style, place);
  canvas.ariaLabel = `loss from ${format(curve[0][1])} to ${format(curve.at(-1)[1])}, ${stepName(state.snapshot)}`;
}
let timer = null;
function play(on) {
  clearInterval(timer);
  const next = () => state.snapshot + 1 < steps.length ? set({ snapshot: state.snapshot + 1 }) : play(false);
  timer = on ? setInterval(next, 350) : null;
  $("play").textContent = on ? "Pause" : "Play";
}
