// ---- the head over its training: lines of study.history, a chart for each group of numbers, with a point for each step
const LINES = {  // {name of a series: its label, class for its colour, dashes}
  previous: ["previous token", "q", ""], duplicate: ["duplicate token", "k", ""], induction: ["induction", "v", ""],
  q: ["through Q", "q", ""], k: ["through K", "k", ""], v: ["through V", "v", ""], mlp: ["through MLPs", "one", "2 3"],
  logits: ["straight from the logits", "one", "6 3"], total: ["together", "all", ""], all: ["together", "all", ""],
};
const CHART = { height: 170, left: 52, right: 18, top: 8, bottom: 20 };
function showHistory() {
  $("history").hidden = !data.history;
  if (!data.history) return;
  $("lines").replaceChildren(...data.history.groups.map(({ title, about, series }) => {
    const lines = series.map(([name, values]) => [name, values[state.layer][state.head].map(Number)])
      .filter(([name, values]) => values.some(v => v) || name === "total" || name === "all");
    return el("figure", {}, el("figcaption", { textContent: title }), small(about), chart(lines), legend(lines));
  }));
}
function chart(lines) {
  const { steps } = data.history, width = Math.max(240, Math.min(420, $("lines").clientWidth || 420));
  const [low, high] = extent(lines.flatMap(([, values]) => values)), { height, left, right, top, bottom } = CHART;
  const x = i => left + (steps.length > 1 ? i / (steps.length - 1) : .5) * (width - left - right);
  const y = v => top + (high - v) / (high - low || 1) * (height - top - bottom);
  const picture = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  const write = (text, at) => { const label = draw("text", at); label.textContent = text; picture.append(label); };
  for (const v of new Set([low, 0, high])) {
    picture.append(draw("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "axis" }));
    write(brief(v), { x: left - 5, y: y(v) + 4, "text-anchor": "end", class: "layer" });
  }
  const every = Math.ceil(steps.length * 38 / (width - left));
  steps.forEach((step, i) => {
    if (i % every === 0) write(step, { x: x(i), y: height - 5, "text-anchor": "middle", class: "layer" });
  });
  for (const [name, values] of lines) {
    const [label, colour, dashes] = LINES[name];
    const points = values.map((v, i) => [x(i), y(v), v, steps[i]]).filter(([, , v]) => isFinite(v));
    picture.append(draw("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "),
      class: `line ${colour}`, "stroke-dasharray": dashes }));
    for (const [x, y, v, step] of points) {
      const point = draw("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 3, class: `point ${colour}` }), title = draw("title", {});
      title.textContent = `step ${step}: ${label} ${brief(v)}`;
      point.append(title);
      picture.append(point);
    }
  }
  picture.setAttribute("aria-label", lines.map(([name, values]) => `${LINES[name][0]}: ${values.map(v => isFinite(v) ? brief(v) : "unknown").join(", ")}`).join("; "));
  return picture;
}
const legend = lines => el("p", { className: "lines" }, ...lines.map(([name, values]) =>
  el("span", { className: LINES[name][1], textContent: `${LINES[name][2] ? "┄" : "—"} ${LINES[name][0]} ${format(values.at(-1), 3)}` })));
