// ---- training: the loss, or a statistic of all heads, over the steps, with a line where the snapshot shown is
const stepName = s => steps[s] === null ? `snapshot ${s + 1} of ${steps.length}` : `step ${steps[s]}`;
const LOSS = "loss", losses = data.losses && { xs: data.losses[0], ys: data.losses[1].map(Number) };
const curvable = [...losses && losses.xs.length ? [LOSS] : [], ...steps.length > 1 ? Object.keys(data.stats) : []];
function lines() {  // {xs, ys, and the layer and head, if it is of one}; the current head is last, above the others
  if (state.curve === LOSS) return [{ ...losses, now: true }];
  const found = [], xs = steps.map((step, s) => step === null ? s : step);
  each((l, h) => found.push({ xs, ys: steps.map((_, s) => Number(data.stats[state.curve][s][l][h])), l, h,
                              now: l === state.layer && h === state.head }));
  return found.sort((a, b) => a.now - b.now);
}
function showCurves() {
  $("curves").hidden = !curvable.length;
  if (!curvable.length) return;
  const found = lines(), width = $("lines").clientWidth || 600, height = 180, left = 52, bottom = 20;
  const [y0, y1] = extent(found.flatMap(line => line.ys)), { xs, ys } = found.at(-1);
  const x = step => left + (step - xs[0]) / (xs.at(-1) - xs[0] || 1) * (width - left - 8);
  const y = v => 8 + (y1 - v) / (y1 - y0 || 1) * (height - bottom - 8);
  const picture = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${state.curve} over training` });
  const write = (text, x, y, anchor) => {
    const label = draw("text", { x, y, "text-anchor": anchor, class: "axis" });
    label.textContent = text;
    picture.append(label);
  };
  picture.append(draw("line", { x1: left, x2: width - 8, y1: y(0), y2: y(0), class: "zero" }));
  write(brief(y1), left - 6, 14, "end"); write(brief(y0), left - 6, height - bottom, "end");
  write(`step ${xs[0]}`, left, height - 5, "start"); write(`step ${xs.at(-1)}`, width - 8, height - 5, "end");
  for (const { xs, ys, l, h, now } of found) {
    let d = "", gap = true;
    ys.forEach((v, i) => {
      if (isFinite(v)) d += `${gap ? "M" : "L"}${x(xs[i]).toFixed(1)},${y(v).toFixed(1)}`;
      gap = !isFinite(v);
    });
    const line = draw("path", { d, class: now ? "curve now" : "curve" }), title = draw("title", {});
    title.textContent = l === undefined ? LOSS : full(l, h);
    line.append(title);
    if (l !== undefined) line.onclick = () => set({ layer: l, head: h });
    picture.append(line);
  }
  const step = steps[state.snapshot] === null ? state.snapshot : steps[state.snapshot];
  picture.append(draw("line", { x1: x(step), x2: x(step), y1: 4, y2: height - bottom, class: "here" }));
  $("lines").replaceChildren(picture);
  const value = ys[xs.indexOf(step)];
  $("curve-value").textContent = state.curve === LOSS ? `${format(ys[0])} … ${format(ys.at(-1))}`
    : `${full(state.layer, state.head)}, ${stepName(state.snapshot)}: ${format(value)}`;
}
