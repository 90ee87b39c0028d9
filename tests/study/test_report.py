"""The report of attention heads as a file: its arrays and texts, and the arguments that it refuses.

test_report_browser.py opens it in a browser."""

import base64
import html
import json
import re
import warnings
import zlib

import numpy as np
import pytest

from minigrad.study.packing import block_means
from minigrad.study.report import LayerView, page, visible

HOSTILE = "</script><img src=x onerror=alert(1)><!--DATA-->&\u2028"


def view(heads=(0, 1), shape=(2, 3, 4), gradients=("dP", "dS"), seed=0, **stats):
    rng = np.random.default_rng(seed)
    b, t, s = shape
    size = (b, len(heads), t, s)
    pattern = rng.dirichlet(np.ones(s), size[:-1])
    return LayerView(list(heads), pattern, {g: rng.normal(size=size) * 10.0**-8 for g in gradients}, stats)


def parts(text):
    """(header, {(number of the layer, kind): array}) of a page, unpacked as the page's script does it: (B, nh, T, S),
    and (B, nh, T) of sizes by token."""
    header = json.loads(re.search('id="data">(.*?)</script>', text, re.DOTALL)[1])
    (packed,), arrays = re.findall('<script type="text/plain" id="numbers">(.*?)</script>', text), {}
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(packed), -15), "<f4")
    for i, layer in enumerate(header["layers"]):
        assert set(layer["blocks"]) == {1}
        shapes = dict.fromkeys(layer["kinds"], (layer["queries"], layer["keys"]))
        shapes |= {name: (n,) for name, n in layer["byToken"]}
        for name, of_head in shapes.items():
            shape = (header["sequences"], len(layer["heads"]), *of_head)
            arrays[i, name] = numbers[: np.prod(shape)].reshape(shape)
            numbers = numbers[np.prod(shape) :]
    assert not len(numbers)
    return header, arrays


def test_arrays_come_back():
    layers = {"a.attn": view(), "b.attn": view((1, 4, 7), (2, 5, 1), (), seed=1)}
    header, arrays = parts(page(layers, title="x"))
    assert [x["heads"] for x in header["layers"]] == [[0, 1], [1, 4, 7]]
    assert set(arrays) == {(0, "pattern"), (0, "dP"), (0, "dS"), (1, "pattern")}
    for (i, kind), x in arrays.items():
        layer = list(layers.values())[i]
        np.testing.assert_allclose(x, layer.pattern if kind == "pattern" else layer.gradients[kind], rtol=1e-6)


def test_nan_and_infinity_are_written():
    layer = view(gradients=(), norm=np.array([np.nan, -np.inf]))
    layer.gradients["dP"] = np.zeros_like(layer.pattern)
    layer.gradients["dP"][0, 0, :2, 0] = np.nan, np.inf
    layer.gradients["dP"][0, 0, 2, 2] = 3.0
    with warnings.catch_warnings(), np.errstate(all="raise"):
        header, arrays = parts(page({"a": layer}, title=""))
    np.testing.assert_allclose(arrays[0, "dP"], layer.gradients["dP"])
    assert header["stats"] == {"norm": [["NaN", "-Infinity"]]}


def test_text_stays_text():
    layer = view(shape=(2, 4, 4), gradients=(HOSTILE,), **{HOSTILE: np.ones(2)})
    text = page({HOSTILE: layer}, title=HOSTILE, tokens=[[HOSTILE] * 4] * 2)
    assert HOSTILE not in text and "<img" not in text and "\u2028" not in text.replace(html.escape(HOSTILE), "")
    assert text.count("</script>") == 3 and text.count("<script") == 3  # data, numbers, and the script
    header, _ = parts(text)
    assert header["layers"][0]["path"] == HOSTILE and HOSTILE in header["layers"][0]["kinds"]
    assert header["tokens"] == [[[visible(HOSTILE)] * 4] * 2] and list(header["stats"]) == [HOSTILE]
    assert f"<title>{html.escape(HOSTILE)}</title>" in text and f"<h1>{html.escape(HOSTILE)}</h1>" in text


def test_no_network_and_one_script():
    text = page({"a": view(norm=np.ones(2))}, title="x")
    assert "http" not in text.replace("http-equiv", "") and "//" not in re.sub(
        r"\s// .*", "", re.sub('id="numbers">[^<]*', "", text)
    )
    assert not re.findall(r"<!--[A-Z]+-->", text)
    assert "default-src 'none'" in text and "script-src 'sha256-" in text and "innerHTML" not in text
    assert not re.search(r"@import|url\(|src=|<link|fetch\(|XMLHttp|eval\(", text)


def test_a_limit_is_kept_and_named():
    views = {"a": view((0, 1), (2, 7, 11)), "b": view((5,), (2, 3, 3), ())}
    options = dict(title="é<", tokens={"a": ([["é"] * 7] * 2, [[" "] * 11] * 2)})
    size = len(page(views, **options).encode())
    assert len(page(views, **options, limit=size).encode()) == size  # exactly the limit is fine
    for limit in (size - 1, 1000):
        with pytest.raises(ValueError, match=r"larger than its limit of 0\.\d+ MB: give fewer layers, .*larger limit"):
            page(views, **options, limit=limit)


def test_a_page_over_the_limit_has_blocks_for_the_heads_that_matter_least():
    big = view((0, 1, 2, 3), (2, 80, 80), norm=np.array([1.0, -9.0, np.nan, 3.0]))
    big.pattern = np.tril(big.pattern)
    options = dict(title="x", matters="norm")
    limit, found = 5_000_000, []
    with pytest.raises(ValueError, match="larger than its limit"):
        while True:
            text = page({"a": big}, **options, limit=limit)
            assert len(text.encode()) <= limit
            found.append(json.loads(re.search('id="data">(.*?)</script>', text, re.DOTALL)[1])["layers"][0]["blocks"])
            limit = len(text.encode()) - 1
    assert found == [[1, 1, 1, 1], [1, 1, 3, 1], [3, 1, 3, 1], [3, 1, 3, 3], [3, 3, 3, 3]]


def test_means_of_blocks():
    x, seen = np.arange(35.0).reshape(5, 7), np.tri(5, 7, dtype=bool)
    means = block_means(x, seen, 3)
    assert means.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            block = np.s_[3 * i : 3 * i + 3, 3 * j : 3 * j + 3]
            assert means[i, j] == pytest.approx(x[block][seen[block]].mean() if seen[block].any() else 0)
    assert block_means(x, seen, 1) is x


def changed(**fields):
    layer = view()
    for name, value in fields.items():
        setattr(layer, name, value)
    return {"a.attn": layer}


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ({}, {}, "no layers"),
        (changed(gradients={"dP": np.ones((2, 2, 4, 3))}), {}, r"a.attn: 'dP' of its gradients is \(2, 2, 4,"),
        (changed(stats={"norm": np.ones(3)}), {}, r"a.attn: 'norm' of its stats is \(3,\)"),
        ({"a": view()}, dict(tokens=[list("abc")] * 2), "layer a has 2 sequences of 4 keys.*2 of"),
        ({"a": view()}, dict(tokens=[list("abc")]), "layer a has 2 sequences of 3 queries.*1 of"),
        ({"a": view()}, dict(tokens=[]), "layer a has 2 sequences of 3 queries.*0 of"),
        ({"a": view()}, dict(tokens={"aa": ([], [])}), r"tokens are given for \['aa'\]"),
    ],
)
def test_bad_input(views, options, message):
    with pytest.raises(ValueError, match=message):
        page(views, title="", **options)
