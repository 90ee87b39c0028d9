"""The report of attention heads as a file: what is in it, what never is, and what is refused. No browser: see
test_report_browser.py for what it does."""

import base64
import html
import json
import re
import warnings
import zlib

import numpy as np
import pytest

from minigrad.study import report
from minigrad.study.report import LayerView, page, visible

HOSTILE = "</script><img src=x onerror=alert(1)><!--DATA-->&\u2028"


def view(heads=(0, 1), shape=(2, 3, 4), gradients=("dP", "dS"), seed=0, **stats):
    rng = np.random.default_rng(seed)
    b, t, s = shape
    size = (b, len(heads), t, s)
    pattern = rng.dirichlet(np.ones(s), size[:-1])
    return LayerView(list(heads), pattern, {g: rng.normal(size=size) * 10.0**-8 for g in gradients}, stats)


def parts(text):
    """(header, {(snapshot, layer, kind): array}) of a page, unpacked as its script does it: (B, nh, T, S), and
    (B, nh, T) for what is by token. Layers are counted."""
    header = json.loads(re.search('id="data">(.*?)</script>', text, re.DOTALL)[1])
    found, arrays, B = re.findall('<script type="text/plain">(.*?)</script>', text), {}, header["sequences"]
    assert len(found) == len(header["steps"])
    for s, chunk in enumerate(found):
        numbers = np.frombuffer(zlib.decompress(base64.b64decode(chunk), -15), "<f4")
        for i, layer in enumerate(header["layers"]):
            shapes = dict.fromkeys(layer["kinds"], (layer["queries"], layer["keys"]))
            shapes |= {name: (n,) for name, n in layer["byToken"]}
            for name, of_head in shapes.items():
                shape = (B, len(layer["heads"]), *of_head)
                arrays[s, i, name] = numbers[: np.prod(shape)].reshape(shape)
                numbers = numbers[np.prod(shape) :]
        assert not len(numbers)
    return header, arrays


def test_arrays_come_back():
    layers = {"a.attn": view(), "b.attn": view((1, 4, 7), (2, 5, 1), (), seed=1)}
    header, arrays = parts(page([(None, layers), (25, layers)], title="x"))
    assert header["steps"] == [None, 25] and [x["heads"] for x in header["layers"]] == [[0, 1], [1, 4, 7]]
    assert set(arrays) == {(s, *k) for s in (0, 1) for k in [(0, "pattern"), (0, "dP"), (0, "dS"), (1, "pattern")]}
    for (_, i, kind), x in arrays.items():
        layer = list(layers.values())[i]
        np.testing.assert_allclose(x, layer.pattern if kind == "pattern" else layer.gradients[kind], rtol=1e-6)


def test_what_is_not_finite():
    layer = view(gradients=(), norm=np.array([np.nan, -np.inf]))
    layer.gradients["dP"] = np.zeros_like(layer.pattern)
    layer.gradients["dP"][0, 0, :2, 0] = np.nan, np.inf
    layer.gradients["dP"][0, 0, 2, 2] = 3.0
    losses = ([0, 1, 2], [1.0, np.nan, np.inf])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        header, arrays = parts(page([(None, {"a": layer})], title="", losses=losses))
    np.testing.assert_allclose(arrays[0, 0, "dP"], layer.gradients["dP"])
    assert header["stats"] == {"norm": [[["NaN", "-Infinity"]]]}
    assert header["losses"] == [[0, 1, 2], [1, "NaN", "Infinity"]]


def test_text_stays_text():
    layer = view(shape=(2, 4, 4), gradients=(HOSTILE,), **{HOSTILE: np.ones(2)})
    text = page([(None, {HOSTILE: layer})], title=HOSTILE, tokens=[[HOSTILE] * 4] * 2)
    assert HOSTILE not in text and "<img" not in text and "\u2028" not in text.replace(html.escape(HOSTILE), "")
    assert text.count("</script>") == 3 and text.count("<script") == 3  # data, numbers, and the script
    header, _ = parts(text)
    assert header["layers"][0]["path"] == HOSTILE and HOSTILE in header["layers"][0]["kinds"]
    assert header["tokens"] == [[[visible(HOSTILE)] * 4] * 2] and list(header["stats"]) == [HOSTILE]
    assert f"<title>{html.escape(HOSTILE)}</title>" in text and f"<h1>{html.escape(HOSTILE)}</h1>" in text


def test_no_network_and_one_script():
    text = page([(3, {"a": view(norm=np.ones(2))})], title="x", losses=([1], [2.0]))
    assert "http" not in text.replace("http-equiv", "") and "//" not in re.sub(
        r"\s// .*", "", re.sub('"text/plain">[^<]*', "", text)
    )
    assert not re.findall(r"<!--[A-Z]+-->", text)
    assert "default-src 'none'" in text and "script-src 'sha256-" in text and "innerHTML" not in text
    assert not re.search(r"@import|url\(|src=|<link|fetch\(|XMLHttp|eval\(", text)


def test_long_curves_are_thinned_but_keep_their_extremes():
    values = np.sin(np.arange(50_000) / 900.0)
    values[[777, 31_234]] = 9.0, -9.0
    values[20_000] = np.inf
    header, _ = parts(page([(0, {"a": view()})], title="", losses=(np.arange(50_000), values)))
    steps, kept = header["losses"]
    assert len(steps) == len(kept) <= report.POINTS + 2 and steps == sorted(steps)
    assert dict(zip(steps, kept)).items() >= {777: 9.0, 31_234: -9.0, 0: 0.0, 49_999: values[-1]}.items()
    for n in (0, 1, report.POINTS):
        header, _ = parts(page([(0, {"a": view()})], title="", losses=(range(n), np.zeros(n))))
        assert len(header["losses"][0]) == n


def test_a_limit_is_kept_and_named():
    snapshots = [(i, {"a": view((0, 1), (2, 7, 11)), "b": view((5,), (2, 3, 3), ())}) for i in range(3)]
    options = dict(title="é<", tokens={"a": ([["é"] * 7] * 2, [[" "] * 11] * 2)})
    size = len(page(snapshots, **options).encode())
    assert len(page(snapshots, **options, limit=size).encode()) == size  # exactly the limit is fine
    for limit in (size - 1, 1000):
        with pytest.raises(ValueError, match=r"larger than its limit of 0\.\d+ MB: give fewer layers, .*larger limit"):
            page(snapshots, **options, limit=limit)


def changed(**fields):
    layer = view()
    for name, value in fields.items():
        setattr(layer, name, value)
    return {"a.attn": layer}


@pytest.mark.parametrize(
    ("snapshots", "options", "message"),
    [
        ([], {}, "no layers"),
        ([(None, {})], {}, "no layers"),
        (
            [(None, changed(gradients={"dP": np.ones((2, 2, 4, 3))}))],
            {},
            r"a.attn: 'dP' of its gradients is \(2, 2, 4,",
        ),
        ([(None, changed(stats={"norm": np.ones(3)}))], {}, r"a.attn: 'norm' of its stats is \(3,\)"),
        ([(0, {"a": view()}), (9, {"b": view()})], {}, "the layers at step 9 have other names, heads or shapes"),
        ([(0, {"a": view()}), (9, {"a": view(shape=(2, 4, 4))})], {}, "the layers at step 9 have other"),
        ([(0, {"a": view()}), (9, {"a": view(gradients=())})], {}, "the layers at step 9 have other"),
        ([(0, {"a": view()}), (9, {"a": view((0, 3))})], {}, "the layers at step 9 have other"),
        ([(None, {"a": view()})], dict(tokens=[list("abc")] * 2), "layer a has 2 sequences of 4 keys.*2 of"),
        ([(None, {"a": view()})], dict(tokens=[list("abc")]), "layer a has 2 sequences of 3 queries.*1 of"),
        ([(None, {"a": view()})], dict(tokens=[]), "layer a has 2 sequences of 3 queries.*0 of"),
        ([(None, {"a": view()})], dict(tokens={"aa": ([], [])}), r"tokens are given for \['aa'\]"),
    ],
)
def test_bad_input(snapshots, options, message):
    with pytest.raises(ValueError, match=message):
        page(snapshots, title="", **options)
