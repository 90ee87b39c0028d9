"""The report's page in Chromium, beyond its two maps: headline, text, cards of the backward pass, flow and lessons."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import study
from minigrad.study.report import LayerView, write

from .conftest import settle

pytestmark = [pytest.mark.browser, pytest.mark.needs("chromium")]
VOCAB = list("abcdefgh")


@pytest.fixture(scope="module")
def model():
    mg.manual_seed(0)
    return study.AttentionOnly(vocab_size=8, block_size=12, n_layer=2, n_head=3, n_embd=24)


@pytest.fixture(scope="module")
def batch(model):
    return mg.randint(0, 8, (2, 12)), mg.randint(0, 8, (2, 12))


@pytest.fixture(scope="module")
def traced(model, batch, tmp_path_factory):
    """(the trace, its flow, importances, the report)"""
    with study.trace_heads(model) as trace:
        model(*batch)[1].backward()
    flow, importance = study.flow(model, batch), {"ablation": study.head_importance(model, [batch])}
    path = tmp_path_factory.mktemp("r") / "heads.html"
    return trace, flow, importance, trace.to_html(path, vocab=VOCAB, flow=flow, importance=importance)


def words(page, selector):
    return re.sub(r"\s+", " ", page.locator(selector).inner_text())


def test_it_opens_on_the_head_that_matters_most(open_page, traced):
    page, importance = open_page(traced[3]), traced[2]["ablation"]
    path = max(importance, key=lambda p: np.abs(importance[p]).max())
    assert page.locator("#name").inner_text() == f"head {path[7]}.{np.abs(importance[path]).argmax()}"
    assert page.evaluate("heads.state().gradient") == "dS"


def test_it_begins_with_its_finding(open_page, traced, model, batch, tmp_path):
    """The headline names the head that matters most, by how much, the next one, and the largest edge between heads."""
    trace, _, importance, _ = traced
    flow = study.flow(model, batch, method="cut")
    page = open_page(trace.to_html(tmp_path / "f.html", flow=flow, importance=importance))
    found = [(x, f"{layer}.{h}") for layer, of in enumerate(importance["ablation"].values()) for h, x in enumerate(of)]
    (value, head), (next_value, next_head), *_ = sorted(found, key=lambda each: -abs(each[0]))
    said = words(page, "#finding")
    way = "rises" if value > 0 else "falls"
    most = rf"Without head {head}, the loss {way} by (\S+), the most of 6 heads; "
    number, next_number = re.match(most + rf"the next is head {next_head} \(([+−]\S+)\)", said).groups()
    assert float(number) == pytest.approx(abs(value), rel=0.06)
    assert float(next_number.replace("−", "-")) == pytest.approx(next_value, rel=0.06)
    u, v, p, edge = next(each for each in flow.all if each[0].head is not None and each[1].head is not None)
    assert f"The largest edge between heads: {u} → {v} by {p.upper()}: {'+' if edge > 0 else '−'}" in said
    page = open_page(trace.to_html(tmp_path / "g.html", flow=traced[1]))
    said = words(page, "#finding")
    assert re.match(r"By gate_grad, head \d\.\d is the largest of 6 \([+−]\S+\); the next is head \d\.\d", said)
    assert "The largest edge between heads, to first order: " in said


def test_cells_that_the_mask_hides_have_no_numbers(open_page, traced):
    page, trace = open_page(traced[3]), traced[0]
    point = "([q, k]) => { state.cell = null; point([q, k]); }"
    page.evaluate(point, [2, 9])
    assert "the mask hides this key" in words(page, "#readout") and page.locator("#readout .value").count() == 0
    state = page.evaluate("heads.state()")
    seen = trace[state["layer"]]
    for kind, x in {"dS": seen.scores_grad, "dP": seen.pattern_grad}.items():
        page.locator("#gradients").get_by_role("button", name=kind, exact=True).click()
        settle(page)
        visible = np.tril(np.ones((12, 12))) * x[0, state["head"]]
        legend = page.locator("#gradient .legend small").last.inner_text()
        assert float(legend) == pytest.approx(np.abs(visible).max(), rel=0.05)
        q, k = np.unravel_index(np.abs(visible).argmax(), visible.shape)
        page.evaluate(point, [int(q), int(k)])
        what = {"dS": "a higher score here", "dP": "more attention here"}[kind]
        assert f"{what} {'raises' if visible[q, k] > 0 else 'lowers'} the loss" in words(page, "#readout")
        assert "Orange: " + what in words(page, "#gradient")


def test_the_way_backward(open_page, traced):
    page, trace = open_page(traced[3]), traced[0]
    state = page.evaluate("heads.state()")
    seen, h = trace[state["layer"]], state["head"]
    cards = {c.split()[0]: re.sub(r"\s+", " ", c) for c in page.locator("#strip .card").all_inner_texts()}
    assert list(cards) == ["dz", "dv", "dP", "dS", "dq", "dk", "dW"]
    sizes = {"dz": seen.z_grad, "dv": seen.v_grad, "dq": seen.q_grad, "dk": seen.k_grad, "dS": seen.scores_grad}
    for name, x in sizes.items():
        assert float(re.search("= (.*?) ", cards[name])[1]) == pytest.approx(np.linalg.norm(x[0, h]), rel=0.05)
    largest = int(np.linalg.norm(seen.q_grad[0, h], axis=-1).argmax())
    assert f"({largest})" in page.locator("#strip .card").nth(4).locator("canvas").get_attribute("title")


def test_the_flow_of_a_head(open_page, traced):
    page, flow = open_page(traced[3]), traced[1]
    page.evaluate("set({ layer: 0, head: 1 })")
    settle(page)
    around = flow.around("0.1")
    assert page.locator("#graph path.edge").count() == len(around)
    assert page.locator("#graph g.node").count() == len({*flow.sources, *(v for v, _ in flow.inputs)})
    for told, (u, v, p, edge) in zip(page.locator("#list li").all_inner_texts(), around):
        assert told.startswith(f"{u} → {v}{' by ' + p.upper() if p else ''}: {'+' if edge > 0 else '−'}")
        assert " ± " in told and told.endswith(f"{'raises' if edge > 0 else 'lowers'} the loss")
    sums, said = flow.by_input("0.1"), words(page, "#list .sums")
    numbers = [float(x.replace("−", "-")) for x in re.findall(r"[+−]\S+(?<![,;.])", said)]
    assert numbers == pytest.approx([sums[p] for p in ("q", "k", "v", "logits", "total")], rel=0.06)
    assert re.match(
        "What it sends, to first order: by Q .*, by K .*, by V .*, straight to the logits .*; together", said
    )
    assert said.endswith(", its gate_grad.")
    page.locator("#graph g.node", has=page.locator("title", has_text=re.compile(r"^1\.2$"))).click()
    settle(page)
    assert page.locator("#name").inner_text() == "head 1.2"
    page.locator("#graph g.node", has=page.locator("title", has_text="positions")).click()
    settle(page)
    assert "positions" in words(page, "#list h3") and page.locator("#name").inner_text() == "head 1.2"
    page.locator("#edges").get_by_role("button", name="all").click()
    settle(page)
    assert page.locator("#graph path.edge").count() == min(60, len(flow.all))


def test_a_flow_of_cut_edges_says_so(open_page, model, batch, traced, tmp_path):
    trace, *_ = traced
    flow = study.flow(model, batch, method="cut")
    page = open_page(trace.to_html(tmp_path / "cut.html", flow=flow))
    page.evaluate("set({ layer: 0, head: 0 })")
    settle(page)
    around = flow.around("0.0")
    for told, (u, v, p, edge), slope in zip(page.locator("#list li").all_inner_texts(), around, around.first_order):
        assert told.startswith(f"{u} → {v}{' by ' + p.upper() if p else ''}: {'+' if edge > 0 else '−'}")
        assert f"{'raises' if edge > 0 else 'lowers'} the loss; first order {'+' if slope > 0 else '−'}" in told
    assert "lacked what u adds" in page.locator("#flow").inner_text()
    assert "a step of training makes it stronger" not in page.locator("#flow").inner_text()


def test_all_labels_of_64_tokens_are_there(open_page, tmp_path):
    pattern = np.random.default_rng(0).dirichlet(np.ones(64), (1, 1, 64))
    view = LayerView([0], pattern, {"dS": pattern})
    page = open_page(write(tmp_path / "a.html", {"a": view}, title="", tokens=[["x"] * 64]))
    page.evaluate("""() => {
        const pen = CanvasRenderingContext2D.prototype, fill = pen.fillText;
        window.told = [];
        pen.fillText = function (text) { told.push(text); fill.apply(this, arguments); };
        maps[0].draw();
    }""")
    assert page.evaluate("told.filter(text => text === 'x').length") == 128


def test_it_says_what_is_differentiated(open_page, traced, tmp_path):
    trace, flow, _, _ = traced
    difference = "logit('a') - logit('b')"
    page = open_page(trace.to_html(tmp_path / "a.html", flow=flow, of=difference))
    for where in "#gradient", "#flow", "#strip", "#backward":
        assert difference in words(page, where)
    page.evaluate("point([11, 3])")
    assert f"s {difference}" in words(page, "#readout")
    assert not re.search(r"(raises|lowers|rises|falls|gradient of) the loss", page.locator("body").inner_text())


def test_tokens_are_shaded_by_the_loss_of_the_prediction_there(open_page, traced, tmp_path):
    losses = np.arange(24.0).reshape(2, 12)
    page = open_page(traced[0].to_html(tmp_path / "a.html", vocab=VOCAB, losses=losses))
    assert "Shaded by the loss of the prediction of the next token, up to 23." in words(page, "#text")
    page.locator("#sequence").select_option("1")
    settle(page)
    chips = page.locator("#tokens button")
    assert chips.nth(3).get_attribute("title").endswith("; the loss of what comes next: 15.00")
    shades = page.evaluate("[...document.querySelectorAll('#tokens button')].map(chip => chip.style.background)")
    assert len(set(shades)) == 12
    with pytest.raises(ValueError, match=r"losses must be \(2, 12\), one for each prediction, not \(12,\)"):
        traced[0].to_html(tmp_path / "a.html", losses=losses[0])
    assert "Shaded" not in words(open_page(traced[3]), "#text")


def test_the_lesson_of_a_step_is_a_map(open_page, traced, model, batch, tmp_path):
    lesson = study.lesson(model, batch, "0.2")
    page = open_page(traced[0].to_html(tmp_path / "a.html", lessons=[lesson]))
    page.evaluate("set({ layer: 0, head: 2, gradient: 'lesson' })")
    settle(page)
    assert "What a step of training would add to the scores" in words(page, "#gradient")
    for q, k in (3, 2), (7, 1):
        page.evaluate("cell => { state.cell = null; point(cell); }", [q, k])
        value = float(page.locator("#readout .value b").last.inner_text())
        assert value == pytest.approx(lesson.positions[q, k], rel=1e-3)
        way = "raises" if value > 0 else "lowers"
        assert f"a step of training {way} this score" in words(page, "#readout")
    other = study.lesson(model, tuple(x[:, :5] for x in batch), "0.2")
    with pytest.raises(ValueError, match=r"the lesson of 0.2 is \(5, 5\), its pattern \(2, 3, 12, 12\)"):
        traced[0].to_html(tmp_path / "a.html", lessons=[other])


def test_gradients_that_are_not_finite_or_zero(open_page, tmp_path):
    pattern = np.tril(np.ones((4, 4)))[None, None] / np.arange(1, 5)[:, None]
    dS = np.stack([np.full((4, 4), np.nan), np.zeros((4, 4)), np.full((4, 4), np.inf)])[None]
    view = LayerView([0, 1, 2], np.repeat(pattern, 3, 1), {"dS": dS}, {"gate_grad": np.zeros(3)})
    page = open_page(write(tmp_path / "a.html", {"a": view}, title="a\ud800b"))
    for shown in "–", "0", "Infinity":
        page.evaluate("point(null); point([3, 1])")
        assert page.locator("#readout .value b").nth(1).inner_text() == shown
        page.keyboard.press("ArrowRight")
        settle(page)


def test_a_click_on_a_prediction_shows_what_comes_from_it(open_page, model, batch, tmp_path, monkeypatch):
    with study.trace_heads(model) as trace:
        trace.backward(study.prediction_losses(model, *batch))
    page, head = open_page(trace.to_html(tmp_path / "a.html", vocab=VOCAB)), trace["1.2"]
    page.evaluate("set({ layer: 1, head: 2, gradient: 'dS', sequence: 1 })")
    page.get_by_role("button", name="this head's gradient").click()
    settle(page)
    gates = head.gate_grad_by_prediction[:, 1]
    sizes = np.sort(np.abs(gates))[::-1]
    n = np.argmax(np.cumsum(sizes) >= 0.8 * sizes.sum()) + 1
    assert f"{n} of 12 predictions make up 80 % of it, by size" in words(page, "#shaded")
    chips = page.locator("#tokens button")
    assert float(chips.nth(5).get_attribute("title").split()[-3].replace("−", "-")) == pytest.approx(gates[5], rel=0.05)
    chips.nth(7).click()
    assert page.evaluate("heads.state().prediction") == 7 and page.evaluate("heads.state().pin") is None
    assert "Only from the prediction after" in words(page, "#gradient")
    for q, k in (6, 2), (7, 7), (8, 3):
        page.evaluate("cell => { state.cell = null; point(cell); }", [q, k])
        value = float(page.locator("#readout .value b").last.inner_text().replace("−", "-"))
        kinds = page.locator("#readout .value small").all_inner_texts()
        shown = dict(zip(map(str.strip, kinds), page.locator("#readout .value b").all_inner_texts()))
        assert float(shown["dS"]) == pytest.approx(head.scores_grad_by_prediction[7, 1, q, k], rel=1e-3, abs=1e-12)
        assert value == pytest.approx(head.pattern_grad[1, q, k], rel=1e-3)
    page.keyboard.press("Escape")
    page.evaluate("set({}); state.cell = null; point([6, 2])")
    shown = page.locator("#readout .value b").nth(1).inner_text()
    assert float(shown) == pytest.approx(head.scores_grad[1, 6, 2], rel=1e-3)
    # A page with room for the maps of few predictions says so of the others.
    monkeypatch.setattr("minigrad.study.report.PREDICTION_SHARE", 4 * 2 * 6 * 72 * 3 / 5_000_000)
    page = open_page(trace.to_html(tmp_path / "b.html", vocab=VOCAB))
    page.evaluate("set({ layer: 1, head: 2, gradient: 'dS', sequence: 1, marked: 'gate' })")
    order = np.argsort(-np.abs(gates))
    page.locator("#tokens button").nth(int(order[2])).click()
    assert page.locator("#gradient .none").is_hidden()
    page.locator("#tokens button").nth(int(order[3])).click()
    assert "no dS of this prediction" in words(page, "#gradient")
    assert page.locator("#marks").is_visible()


def test_a_page_without_predictions_offers_none(open_page, traced):
    page = open_page(traced[3])
    assert page.locator("#marks").is_hidden() and "Click a token to see where it looks." in words(page, "#shaded")


def test_lines_over_training(open_page, traced, model, batch, tmp_path):
    history = study.history([(0, model), (10, model), (40, model)], batch, periods=[4])
    page = open_page(traced[0].to_html(tmp_path / "a.html", history=history))
    page.evaluate("set({ layer: 0, head: 2 })")
    settle(page)
    charts = page.locator("#lines figure")
    assert charts.count() == 3 and "Over training" in words(page, "#history")
    found = history["0.2"]
    for chart, group in zip(charts.all(), ("scores", "gate_grad", "lesson")):
        dots = chart.locator("circle title").all_text_contents()
        shown = [name for name, x in found[group].items() if x.any()]
        assert len(dots) == 3 * len(shown)
        for i, dot in enumerate(dots):
            step, value = re.fullmatch(r"step (\d+): .* (\S+)", dot).groups()
            assert int(step) == history.steps[i % 3]
            assert float(value) == pytest.approx(found[group][shown[i // 3]][i % 3], rel=0.05, abs=1e-9)
    assert "through K" in words(page, "#lines") and "MLPs" not in " ".join(
        page.locator("#lines circle title").all_text_contents()
    )
    assert open_page(traced[3]).locator("#history").is_hidden()


def test_maps_of_blocks_say_so_and_have_the_means(open_page, tmp_path):
    rng = np.random.default_rng(0)
    pattern = np.tril(rng.dirichlet(np.ones(70), (2, 3, 70)))
    gradients = {"dS": np.tril(rng.normal(size=pattern.shape))}
    view = LayerView([0, 1, 2], pattern, gradients, {"norm": np.array([1.0, 5.0, 2.0])}, name="0")
    whole = write(tmp_path / "whole.html", {"a": view}, title="T").stat().st_size
    page = open_page(write(tmp_path / "a.html", {"a": view}, title="T", matters="norm", limit=whole - 1))
    assert page.evaluate("layers[0].blocks") == [3, 1, 1]
    for head in (0, 1, 2):
        page.evaluate("head => set({ head, sequence: 1 })", head)
        settle(page)
        assert ("Means of blocks of 3 × 3 cells" in words(page, "#pattern")) == (head == 0)
        for q, k in (40, 13), (69, 69), (2, 0):
            page.evaluate("cell => { state.cell = null; point(cell); }", [q, k])
            shown = [float(v) for v in page.locator("#readout .value b").all_inner_texts()]
            side = 3 if head == 0 else 1
            block = tuple(slice(n // side * side, n // side * side + side) for n in (q, k))
            seen = np.tri(70, dtype=bool)[block]
            for value, x in zip(shown, (pattern, gradients["dS"])):
                assert value == pytest.approx(x[1, head][block][seen].mean(), rel=1e-3, abs=1e-7)
        page.evaluate("state.cell = null; point([10, 30])")
        assert "the mask hides this key" in words(page, "#readout")
        assert ("‖dS‖" in page.locator("#strip").inner_text()) == (head != 0)
