// ---- the grid of heads: a row for each layer, labelled by its path without the parts that all paths share
const short = layers.map(({ path }) => path.split("."));
for (const [end, drop] of [[0, "shift"], [-1, "pop"]])
  while (layers.length > 1 && short.every(p => p.length > 1 && p.at(end) === short[0].at(end)))
    short.forEach(p => p[drop]());
const names = short.map(parts => parts.filter(part => part !== "layers" && part !== "blocks").join("."));
// A label for little room: "0", or "e0s" for encoder.0.self_attn.
const initials = name => name.split(".").map(part => /^\d+$/.test(part) ? part : part[0]).join("");
const columns = [...new Set(layers.flatMap(layer => layer.heads))].sort((a, b) => a - b), thumbs = layers.map(() => []);
$("thumbs").style.setProperty("--n", columns.length);
$("thumbs").append(small(""), ...columns.map(small), ...layers.map(({ path }, l) => {
  const label = el("small", { textContent: cut(names[l], 22), title: path });
  label.style.gridArea = `${l + 2} / 1`;
  return label;
}));
each((l, h, head) => {
  const properties = { ariaLabel: headName(l, h), title: headName(l, h), onclick: () => set({ layer: l, head: h }) };
  thumbs[l][h] = el("button", properties, el("canvas"));
  thumbs[l][h].style.gridArea = `${l + 2} / ${columns.indexOf(head) + 2}`;
  $("thumbs").append(thumbs[l][h]);
});
const paintThumbs = () => each((l, h) => paint(thumbs[l][h].firstChild, numbers(l, h, "pattern")));

// ---- bars: a statistic of every head, on one scale
const charts = Object.entries(data.stats).map(([name, raw]) => {
  const values = raw.map(layer => layer.map(Number)), [low, high] = extent(values.flat());
  const any = values.flat().some(isFinite), percent = x => x / (high - low || 1) * 100 + "%";
  const caption = el("b"), bars = layers.map(() => []);
  const say = (l, h) => caption.textContent = format(values[l][h]);
  each((l, h) => bars[l][h] = el("button", { tabIndex: -1, onclick: () => set({ layer: l, head: h }),
                                             onpointerenter: () => say(l, h) }));
  const plot = el("div", { className: "bars", onpointerleave: () => say(state.layer, state.head) },
                  ...bars.map(group => el("div", {}, ...group)));
  const under = names.map((name, l) => el("small", { textContent: initials(name), title: layers[l].path }));
  const scale = small(any ? `${brief(low)} … ${brief(high)}` : "no values");
  scale.title = "the range of the bars";
  const meaning = el("p", { className: "meaning", textContent: own(data.meanings, name) || "" });
  $("stats").append(el("figure", {}, el("figcaption", {}, el("span", {}, name + " ", caption), scale), plot,
                       el("div", { className: "under" }, ...under), meaning));
  return () => {
    say(state.layer, state.head);
    each((l, h) => {
      const v = values[l][h], bar = bars[l][h], end = clamp(v, low, high);
      bar.title = bar.ariaLabel = `${headName(l, h)}: ${name} ${format(v)}`;
      bar.ariaCurrent = l === state.layer && h === state.head;
      bar.replaceChildren(isNaN(v) ? el("em", { textContent: "–" }) : el("i"));
      if (!isNaN(v)) Object.assign(bar.firstChild.style, { height: percent(Math.abs(end)),
                                                           bottom: percent(Math.min(end, 0) - low) });
    });
  };
});
