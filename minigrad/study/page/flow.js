// ---- the flow of gradients between the parts of the model, from the bottom up, as study.flow computed it
const SVG = document.querySelector("svg").namespaceURI;
const draw = (name, attributes, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const INPUTS = { q: "Q", k: "K", v: "V", "": "its only input" }, KINDS = { q: "q", k: "k", v: "v", "": "one" };
const SHIFT = { q: -8, k: 0, v: 8, "": 0 };  // so that the edges of a pair do not cover each other
const MANY = 60, IN_LIST = 8;  // the most edges that are drawn, and that are listed in words
const paths = (data.flow ? data.flow.nodes : []).map(([, , , path]) => path.split("."));
let common = 0;  // the number of parts with which all paths begin
while (paths.length && paths.every(p => p.length > common + 1 && p[common] === paths[0][common])) common++;
const briefly = path => path.split(".").slice(common).filter(part => part !== "layers" && part !== "blocks").join(".");
const headNode = () => data.flow.nodes.findIndex(([, l, h]) => l === state.layer && h === state.head);
let flowShown = "";
function showFlow() {
  $("flow").hidden = !data.flow;
  if (!data.flow) return;
  document.querySelectorAll("#flow .method").forEach(p => p.hidden = !p.classList.contains(data.flow.method));
  const { nodes, rows, edges } = data.flow, width = $("graph").clientWidth || 600;
  const centre = state.part === "all" ? null : state.part === null ? headNode() : state.part;
  const what = [centre, state.part, state.layer, state.head, width].join();
  if (flowShown === what) return;
  flowShown = what;
  const touching = edges.filter(([u, v]) => centre === null || u === centre || v === centre);
  const shown = touching.slice(0, MANY), top = shown.length ? Math.abs(shown[0][3]) : 1;
  const pitch = clamp(520 / rows.length, 46, 92), height = rows.length * pitch, at = [];
  rows.forEach((row, r) => row.forEach((node, i) =>
    at[node] = [width * (i + .5) / row.length, height - (r + .5) * pitch]));
  const picture = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": "parts of the model: Enter shows a part's edges, which are listed beside it" });
  for (const [u, v, p, edge, error, first] of [...shown].reverse()) {  // the largest are drawn last, above the others
    const [x0, y0] = at[u], [x1, y1] = [at[v][0] + SHIFT[p], at[v][1]], bend = (y0 - y1) / 2;
    const line = draw("path", { d: `M${x0},${y0 - 11}C${x0},${y0 - bend} ${x1},${y1 + bend} ${x1},${y1 + 11}`,
      class: `edge ${KINDS[p]}`, "stroke-width": Math.max(.6, Math.abs(edge) / top * 7).toFixed(2) });
    if (edge > 0) line.setAttribute("stroke-dasharray", "5 3");
    const told = draw("title", {});
    told.textContent = inWords(u, v, p, edge, error, first);
    line.append(told);
    picture.append(line);
  }
  nodes.forEach(([name, l, h, path], node) => {
    const [x, y] = at[node], row = rows.find(row => row.includes(node)), room = width / row.length;
    const beside = name.endsWith(".bias") && nodes[row[0]][1] >= 0;  // a bias stands beside the heads of its layer
    const brief = beside ? "bias" : cut(name === path ? briefly(path) : name, Math.max(1, Math.floor(room / 8)));
    const label = l < 0 ? brief : String(layers[l].heads[h]);
    const box = draw("g", { role: "button", tabindex: 0, "aria-label": name, class: `node${node === centre ? " centre" : ""}${l === state.layer && h === state.head ? " now" : ""}`,
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
    const wide = Math.min(room - 2, Math.max(20, label.length * 7 + 10)), title = draw("title", {}), text = draw("text", {});
    title.textContent = name; text.textContent = label;
    box.append(draw("rect", { x: -wide / 2, y: -11, width: wide, height: 22, rx: 5 }), text, title);
    box.onclick = () => l < 0 ? set({ part: node }) : set({ layer: l, head: h, part: null });
    box.onkeydown = event => { if (event.key === "Enter") box.onclick(); };
    picture.append(box);
  });
  rows.forEach((row, r) => {  // the names of layers
    const [, l] = nodes[row[0]];
    if (l < 0) return;
    const label = draw("text", { x: 2, y: height - r * pitch - 2, class: "layer" });
    label.textContent = briefly(layers[l].path);
    picture.append(label);
  });
  $("graph").replaceChildren(picture);
  if (centre > 0) $("graph").scrollTop = at[centre][1] - $("graph").clientHeight / 2;
  const heading = centre === null ? "The largest edges" : centre < 0 ? "This head is not part of the flow"
    : `The largest edges of ${nodes[centre][2] < 0 ? "" : "head "}${nodes[centre][0]}`;
  const items = touching.slice(0, IN_LIST).map(each => el("li", { textContent: inWords(...each) }));
  $("list").replaceChildren(el("h3", { textContent: heading }), el("p", { className: "sums", textContent: sumsOf(centre) }),
                            el("ol", {}, ...items));
}
function inWords(u, v, p, edge, error, first) {
  const { nodes, method } = data.flow;
  return `${nodes[u][0]} → ${nodes[v][0]}${p ? " by " + INPUTS[p] : ""}: ${signed(edge)}`
    + `${error === null ? "" : " ± " + brief(error)}, ${edge > 0 ? "raises" : "lowers"} ${data.of}`
    + (method === "cut" ? `; first order ${signed(first)}` : "");
}
// What a node sends, added up by the inputs that read it: together it is the gradient of a gate on the node.
const READ_BY = { q: "by Q", k: "by K", v: "by V", mlp: "by MLPs", logits: "straight to the logits" };
function sumsOf(node) {
  const sums = node === null ? undefined : own(data.flow.sums, node);
  if (!sums) return "";
  const parts = sums.filter(([name, x]) => name !== "total" && x).map(([name, x]) => `${READ_BY[name]} ${signed(x)}`);
  const [, total] = sums.at(-1), isHead = data.flow.nodes[node][2] >= 0;
  return parts.length ? `What it sends, to first order: ${parts.join(", ")}; together ${signed(total)}${isHead ? ", its gate_grad" : ""}.`
    : "Nothing reads it.";
}
