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
  for (const id of ["finding", "summary", "readout", "predictions"]) $(id).ariaLive = on ? "off" : "polite";
}

// ---- a statistic of all heads in the course of training
const curvable = steps.length > 1 ? Object.keys(data.stats) : [];
function showCurves() {
  $("curves").hidden = !curvable.length;
  if (!curvable.length) return;
  const raw = data.stats[state.curve], width = $("lines").clientWidth || 600, height = 180, left = 52, bottom = 20;
  const xs = steps.map((step, s) => step === null ? s : step);
  const [y0, y1] = extent(raw.flat(2).map(Number));
  const x = s => left + (xs[s] - xs[0]) / (xs.at(-1) - xs[0] || 1) * (width - left - 8);
  const y = v => 8 + (y1 - v) / (y1 - y0 || 1) * (height - bottom - 8);
  const picture = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${state.curve} of all heads over training` });
  const write = (text, x, y, anchor) => {
    const label = draw("text", { x, y, "text-anchor": anchor, class: "axis" });
    label.textContent = text;
    picture.append(label);
  };
  picture.append(draw("line", { x1: left, x2: width - 8, y1: y(0), y2: y(0), class: "zero" }));
  write(brief(y1), left - 6, 14, "end"); write(brief(y0), left - 6, height - bottom, "end");
  write(stepName(0), left, height - 5, "start"); write(stepName(steps.length - 1), width - 8, height - 5, "end");
  const order = [];
  each((l, h) => order.push([l, h]));
  const now = ([l, h]) => l === state.layer && h === state.head;
  for (const [l, h] of [...order.filter(p => !now(p)), ...order.filter(now)]) {
    let d = "", gap = true;
    steps.forEach((_, s) => {
      const v = Number(raw[s][l][h]);
      if (isFinite(v)) d += `${gap ? "M" : "L"}${x(s).toFixed(1)},${y(v).toFixed(1)}`;
      gap = !isFinite(v);
    });
    const line = draw("path", { d, class: now([l, h]) ? "curve now" : "curve" }), title = draw("title", {});
    title.textContent = full(l, h);
    line.append(title);
    line.onclick = () => set({ layer: l, head: h });
    picture.append(line);
  }
  picture.append(draw("line", { x1: x(state.snapshot), x2: x(state.snapshot), y1: 4, y2: height - bottom, class: "here" }));
  $("lines").replaceChildren(picture);
  const value = Number(raw[state.snapshot][state.layer][state.head]);
  $("curve-value").textContent = `${full(state.layer, state.head)}, ${stepName(state.snapshot)}: ${format(value)}`;
}
