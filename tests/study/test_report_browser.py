"""The report of attention heads in Chromium, from file://: it shows the arrays' numbers after each click and key."""

import re

import numpy as np
import pytest

from minigrad.study.report import LayerView, write

from .conftest import settle

pytestmark = [pytest.mark.browser, pytest.mark.needs("chromium")]

PATHS = ["blocks.0.attn", "blocks.1.attn"]
HEADS = [[0, 1, 2, 3], [0, 2]]
TOKENS = [[" a", "\n", "ccc", "", "x" * 60, "\x00", "g", "h"], list("stuvwxyz")]
HOSTILE = "</script><img src=x onerror=window.hurt=1><!--DATA-->"


def layers(t=8):
    result = {}
    for place, (path, heads) in enumerate(zip(PATHS, HEADS)):
        rng = np.random.default_rng(place)
        size = (2, len(heads), t, t)
        pattern = rng.dirichlet(np.ones(t), size[:-1])
        gradients = {"dP": rng.normal(size=size) * 1e-8, "dS": rng.normal(size=size)} if place == 0 else {}
        stats = {"entropy": rng.uniform(1, 2, len(heads)), "importance": rng.normal(size=len(heads))}
        stats["entropy"][-1] = np.nan
        result[path] = LayerView(heads, pattern, gradients, stats, name=str(place))
    return result


VIEWS = layers()


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    return write(tmp_path_factory.mktemp("r") / "heads.html", VIEWS, title="T", tokens=TOKENS)


def shown(page):
    """{"pattern": 0.1, "dP": …} of the readout."""
    settle(page)
    words = page.locator("#readout .value").all_inner_texts()
    return {name: float(value) for name, value in (text.split() for text in words)}


def check_readout(page, layer, head, q, k, sequence=0):
    view = VIEWS[PATHS[layer]]
    h = HEADS[layer].index(head)
    right = {kind: x[sequence, h, q, k] for kind, x in {"pattern": view.pattern, **view.gradients}.items()}
    assert shown(page) == pytest.approx(right, rel=1e-3)


def hover(page, name, q, k):
    settle(page)
    page.locator(f"#{name}-map").scroll_into_view_if_needed()
    page.mouse.move(*page.evaluate("([name, q, k]) => heads.cell(name, q, k)", [name, q, k]))


def name(page):
    return page.locator("#name").inner_text()


@pytest.mark.parametrize("ratio", [1, 2, 1.5])
def test_hover_reads_the_right_numbers(open_page, heads, ratio):
    page = open_page(heads, device_scale_factor=ratio)
    for kind in ("pattern", "gradient"):
        for q, k in [(0, 0), (7, 0), (0, 7), (3, 5)]:
            hover(page, kind, q, k)
            check_readout(page, 0, 0, q, k)
    hover(page, "pattern", 1, 4)
    text = page.locator("#readout").inner_text()
    assert "query ⏎ (1)" in re.sub(r"\s+", " ", text) and "x" * 60 in text  # labels are cut, but not here
    page.mouse.move(5, 5)
    assert shown(page) == {}


def test_cells_are_drawn_where_they_are_read(open_page, tmp_path):
    pattern, gradient = np.full((1, 1, 7, 5), 1e-12), np.zeros((1, 1, 7, 5))
    pattern[0, 0, 2, 4] = 1.0
    gradient[0, 0, 6, 1], gradient[0, 0, 0, 3] = 1e-9, -1e-9
    path = write(tmp_path / "a.html", {"a": LayerView([0], pattern, {"dP": gradient})}, title="")
    for ratio in (1, 1.25, 2):
        page = open_page(path, device_scale_factor=ratio)
        read = """name => {
            const canvas = document.getElementById(name + "-map"), box = canvas.getBoundingClientRect();
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), cells = [];
            for (let q = 0; q < 7; q++) for (let k = 0; k < 5; k++) {
                const [x, y] = heads.cell(name, q, k), at = v => Math.round(v * devicePixelRatio);
                const i = 4 * (at(y - box.top) * canvas.width + at(x - box.left));
                cells.push([q, k, ...data.slice(i, i + 3)]);
            }
            return cells;
        }"""
        colours = {n: {(q, k): tuple(c) for q, k, *c in page.evaluate(read, n)} for n in ("pattern", "gradient")}
        assert [at for at, c in colours["pattern"].items() if c != (255, 255, 255)] == [(2, 4)]
        marked = {at: c for at, c in colours["gradient"].items() if c != (255, 255, 255)}
        assert marked.keys() == {(6, 1), (0, 3)}
        assert marked[6, 1][0] > marked[6, 1][2] and marked[0, 3][0] < marked[0, 3][2]  # brown is up, green is down


def test_heads_flip_by_key_thumbnail_button_and_bar(open_page, heads):
    page = open_page(heads)
    hover(page, "pattern", 3, 5)
    press = page.keyboard.press
    for key, layer, head in [
        *[("ArrowRight", 0, 1), ("ArrowRight", 0, 2), ("ArrowDown", 1, 2), ("ArrowRight", 1, 0), ("ArrowUp", 0, 0)],
        *[("ArrowLeft", 0, 3), ("ArrowDown", 1, 2), ("ArrowDown", 0, 2)],
    ]:
        press(key)
        assert name(page) == f"head {layer}.{head}"
        check_readout(page, layer, head, 3, 5)
    page.locator("#thumbs button").nth(5).click()
    assert name(page) == "head 1.2"
    assert page.locator("#thumbs [aria-current=true]").get_attribute("aria-label") == "head 1.2"
    assert page.locator("#gradient .none").inner_text() == "no gradient was traced"
    page.get_by_label("next layer").click()
    page.get_by_label("previous head").click()
    assert name(page) == "head 0.1" and page.locator("#gradient .none").is_hidden()
    bar = page.locator("#stats figure").nth(1).locator("button").nth(4)
    value = VIEWS[PATHS[1]].stats["importance"][0]
    assert float(bar.get_attribute("title").split()[-1]) == pytest.approx(value, rel=1e-3)
    bar.click(position={"x": 3, "y": 3})  # all its column, however low the bar is
    assert name(page) == "head 1.0"
    assert page.locator("#stats figure").nth(0).locator("button").nth(3).get_attribute("title").endswith("entropy –")
    assert page.locator("#stats [aria-current=true]").count() == 2


def test_the_buttons_choose_gradient_and_shading(open_page, heads):
    page = open_page(heads)
    legend = page.locator("#gradient .legend small").last
    top = {kind: np.abs(x[0, 0]).max() for kind, x in VIEWS[PATHS[0]].gradients.items()}
    for kind in ("dS", "dP"):
        page.get_by_role("button", name=kind, exact=True).click()
        assert page.locator("#gradient figcaption").inner_text().startswith("gradient " + kind)
        assert float(legend.inner_text()) == pytest.approx(top[kind], rel=0.05)
        assert page.evaluate("heads.state().gradient") == kind
    before = page.locator("#pattern-map").screenshot()
    page.get_by_role("button", name="linear").click()
    assert page.locator("#pattern-map").screenshot() != before


def test_pin_and_unpin(open_page, heads):
    page = open_page(heads)
    assert page.locator("#pinned").is_hidden()
    hover(page, "gradient", 4, 2)
    page.mouse.click(*page.evaluate("heads.cell('gradient', 4, 2)"))
    lines = page.locator("#pinned .chips")
    assert lines.count() == 2 and "(4)" in page.locator("#pinned").inner_text()
    chips = lines.nth(0).locator("span")
    assert chips.all_inner_texts()[:4] == ["␣a", "⏎", "ccc", "∅"] and chips.nth(5).inner_text() == r"\x00"
    view = VIEWS[PATHS[0]]
    for line, x in enumerate([view.pattern, view.gradients["dP"]]):
        values = [float(c.get_attribute("title").split()[-1]) for c in lines.nth(line).locator("span").all()]
        np.testing.assert_allclose(values, x[0, 0, 4], rtol=1e-3)
    page.keyboard.press("ArrowRight")  # the click did not take the keys, and the pin stays
    assert name(page).endswith(".1") and page.locator("#pinned").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#pinned").is_hidden()


def test_a_click_holds_the_cell_that_is_read(open_page, heads):
    page = open_page(heads)
    hover(page, "pattern", 4, 2)
    page.mouse.click(*page.evaluate("heads.cell('pattern', 4, 2)"))
    page.mouse.move(5, 5)
    check_readout(page, 0, 0, 4, 2)
    hover(page, "gradient", 7, 1)  # another cell is read while the pointer is on it
    check_readout(page, 0, 0, 7, 1)
    page.mouse.move(5, 5)
    check_readout(page, 0, 0, 4, 2)
    page.keyboard.press("Escape")
    assert shown(page) == {}


def test_keys_on_a_map(open_page, heads):
    page = open_page(heads)
    page.locator("#pattern-map").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    assert name(page).endswith(".0")
    check_readout(page, 0, 0, 1, 1)
    page.keyboard.press("Enter")
    assert page.evaluate("heads.state().pin") == 1
    page.keyboard.press("Escape")
    assert page.evaluate("heads.state().pin") is None


def test_sequences(open_page, heads):
    page = open_page(heads)
    page.locator("#sequence").select_option("1")
    page.locator("#thumbs button").nth(2).click()
    hover(page, "pattern", 2, 5)
    check_readout(page, 0, 2, 2, 5, sequence=1)
    assert re.sub(r"\s+", " ", page.locator("#readout").inner_text()).startswith("query u (2) → key x (5)")


def test_hostile_text_is_only_text(open_page, tmp_path):
    tokens = [[HOSTILE, "<b>", "&amp;", '"', "'", "\u2028", "${1}", "\u202e"]] * 2
    views = {HOSTILE + str(i): view for i, view in enumerate(layers().values())}
    for view in views.values():
        view.stats = {HOSTILE: np.ones(len(view.heads))}
        view.gradients, view.name = {HOSTILE: view.pattern}, ""
    page = open_page(write(tmp_path / "a.html", views, title=HOSTILE, tokens=tokens))
    assert page.locator("h1").inner_text() == page.title() == HOSTILE
    assert name(page) == f"head {HOSTILE}0.0"
    hover(page, "pattern", 0, 1)
    assert HOSTILE in page.locator("#readout").inner_text() and "<b>" in page.locator("#readout").inner_text()
    page.mouse.click(*page.evaluate("heads.cell('pattern', 2, 2)"))
    assert page.locator("#pinned .chips").nth(1).locator("span").all_inner_texts()[1:4] == ["<b>", "&amp;", '"']
    assert page.locator("img, b b, script").count() == 3  # data, numbers, and the script


def test_cross_attention(open_page, tmp_path):
    rng = np.random.default_rng(0)
    pattern = rng.dirichlet(np.ones(3), (1, 2, 5))
    views = {"x.cross": LayerView([0, 1], pattern), "x.self": LayerView([0], np.eye(4)[None, None])}
    path = write(tmp_path / "a.html", views, title="", tokens={"x.cross": ([list("abcde")], [["k", "l", "m"]])})
    page = open_page(path)
    hover(page, "pattern", 4, 2)
    text = re.sub(r"\s+", " ", page.locator("#readout").inner_text())
    assert text.startswith("query e (4) → key m (2)") and shown(page) == pytest.approx(
        {"pattern": pattern[0, 0, 4, 2]}, rel=1e-3
    )
    page.keyboard.press("ArrowDown")
    assert shown(page) == {}  # this layer has no query 4
    hover(page, "pattern", 3, 3)
    assert re.sub(r"\s+", " ", page.locator("#readout").inner_text()).startswith("query 3 → key 3")
    for hidden in ("#sequences", "#gradients"):
        assert page.locator(hidden).is_hidden()
