"""The report of attention heads as a file: what is in it, what never is, and what is refused. No browser: see
test_report_browser.py for what it does."""

import base64
import html
import io
import json
import math
import re
import warnings
import zlib

import numpy as np
import pytest

from minigrad.study.report import LayerView, document, packed, page, visible, write

HOSTILE = "</script><img src=x onerror=alert(1)><!--DATA-->&\u2028"


def view(heads=(0, 1), shape=(2, 3, 4), gradients=("dP", "dS"), seed=0, **stats):
    rng = np.random.default_rng(seed)
    b, t, s = shape
    size = (b, len(heads), t, s)
    pattern = rng.dirichlet(np.ones(s), size[:-1])
    return LayerView(list(heads), pattern, {g: rng.normal(size=size) * 10.0**-8 for g in gradients}, stats)


def parts(text):
    """(header, {(snapshot, layer, kind): array}) of a page, unpacked as its script does it: (B, nh, T, S), with 0 for
    cells that are not seen, and (B, nh, T) for what is by token. Layers are counted."""
    header = json.loads(re.search('id="data">(.*?)</script>', text, re.DOTALL)[1])
    for layer, kinds in zip(header["layers"], header["kinds"]):
        layer["kinds"] = kinds
    found = re.findall('<script type="text/plain">(.*?)</script>', text)
    chunks = [io.BytesIO(zlib.decompress(base64.b64decode(chunk), -15)) for chunk in found]
    arrays, B = {}, header["sequences"]
    assert len(chunks) == len(header["steps"]) * (1 + len(header["layers"]))
    for s, (peaks, by_token) in enumerate(zip(header["peaks"], header["tokenPeaks"])):
        for i, layer in enumerate(header["layers"]):
            data, shape = chunks[s * (1 + len(header["layers"])) + 1 + i], (B, layer["queries"], layer["keys"])
            cells = int(np.prod(shape))
            bits = np.unpackbits(np.frombuffer(data.read(-(-cells // 8)), np.uint8), bitorder="little")
            seen = bits[:cells].astype(bool).reshape(shape)
            for kind in layer["kinds"]:
                x = np.zeros((len(layer["heads"]), *shape))
                for h, peak in enumerate(peaks[i][kind]):
                    x[h][seen] = numbers(data, int(seen.sum()), header["precision"]) * peak
                arrays[s, i, kind] = x.swapaxes(0, 1)
            for name, n in layer["byToken"]:
                heads = [numbers(data, B * n, None).reshape(B, n) * peak for peak in by_token[i][name]]
                arrays[s, i, name] = np.stack(heads, 1)
            assert data.read() == b""
    return header, arrays


def numbers(data, n, steps):
    """n fractions: float16, or bytes with this many steps."""
    if not steps:
        return np.frombuffer(data.read(2 * n), "<f2").astype(np.float64) / 2**15
    codes = np.frombuffer(data.read(n), "i1").astype(np.float64)
    return np.where(codes == -128, np.nan, np.sign(codes) * (codes / steps) ** 2)


def test_arrays_come_back():
    layers = {"a.attn": view(), "b.attn": view((1, 4, 7), (2, 5, 1), (), seed=1)}
    header, arrays = parts(page([(None, layers), (25, layers)], title="x"))
    assert header["steps"] == [None, 25] and [x["heads"] for x in header["layers"]] == [[0, 1], [1, 4, 7]]
    assert set(arrays) == {(s, *k) for s in (0, 1) for k in [(0, "pattern"), (0, "dP"), (0, "dS"), (1, "pattern")]}
    for (_, i, kind), x in arrays.items():
        layer = list(layers.values())[i]
        np.testing.assert_allclose(x, layer.pattern if kind == "pattern" else layer.gradients[kind], rtol=5e-4)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_any_magnitude_keeps_its_digits(size):
    layer = view()
    layer.gradients["dP"] = np.array([1, -1, 1e-3, 1e-7] * 12).reshape(2, 2, 3, 4) * size
    np.testing.assert_allclose(
        parts(page([(None, {"a": layer})], title=""))[1][0, 0, "dP"], layer.gradients["dP"], rtol=5e-4
    )


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


def test_a_statistic_that_a_layer_lacks_is_nan():
    header, _ = parts(page([(None, {"a": view(norm=np.ones(2)), "b": view((3,), entropy=np.ones(1))})], title=""))
    assert header["stats"] == {"norm": [[[1, 1], ["NaN"]]], "entropy": [[["NaN", "NaN"], [1]]]}


def test_text_stays_text():
    layer = view(shape=(2, 4, 4), gradients=(HOSTILE,), **{HOSTILE: np.ones(2)})
    text = page([(None, {HOSTILE: layer})], title=HOSTILE, tokens=[[HOSTILE] * 4] * 2)
    assert HOSTILE not in text and "<img" not in text and "\u2028" not in text.replace(html.escape(HOSTILE), "")
    assert text.count("</script>") == 4 and text.count("<script") == 4  # data, thumbnails, one layer, and the script
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


@pytest.mark.parametrize(
    ("token", "shown"),
    [("a", "a"), (" the", "␣the"), ("\n", "⏎"), ("\t", "⇥"), ("", "∅"), ("\x00\x1b", r"\x00\x1b"), ("é漢", "é漢")]
    + [("\u202e", r"\u202e"), ("\udc80", r"\udc80"), ("\xa0", r"\xa0")],
)
def test_visible(token, shown):
    assert visible(token) == shown


def test_tokens_of_one_layer_and_of_none():
    b = view((0,), (2, 3, 4))
    queries, keys = [list("abc")] * 2, [list("wxyz")] * 2
    header, _ = parts(page([(None, {"a": view(), "b": b})], title="", tokens={"b": (queries, keys)}))
    assert [x["tokens"] for x in header["layers"]] == [None, [0, 1]] and header["tokens"] == [queries, keys]


def test_long_curves_are_thinned_but_keep_their_extremes():
    values = np.sin(np.arange(50_000) / 900.0)
    values[[777, 31_234]] = 9.0, -9.0
    values[20_000] = np.nan
    header, _ = parts(page([(0, {"a": view()})], title="", losses=(np.arange(50_000), values)))
    steps, kept = header["losses"]
    assert len(steps) == len(kept) <= 3 * document.STRETCHES + 2 and steps == sorted(steps)
    assert dict(zip(steps, kept)).items() >= {777: 9.0, 31_234: -9.0, 20_000: "NaN", 0: 0.0, 49_999: values[-1]}.items()


def test_curves_are_thinned_only_when_they_are_long():
    for n in (0, 1, 3 * document.STRETCHES, 3 * document.STRETCHES + 1):
        header, _ = parts(page([(0, {"a": view()})], title="", losses=(range(n), np.zeros(n))))
        assert len(header["losses"][0]) == (n if n <= 3 * document.STRETCHES else document.STRETCHES + 1), n
    for losses in (([[1]], [[1.0]]), ([math.nan], [1.0]), ([math.inf], [1.0]), ([1], [1.0, 2.0])):
        with pytest.raises(ValueError, match="losses: as many steps as values are needed"):
            page([(0, {"a": view()})], title="", losses=losses)


def test_the_largest_number_is_kept_exactly():
    peak = view(shape=(1, 1, 3))
    peak.pattern[0, :, 0] = [0.0, 2.0**-26, 1.0]
    _, arrays = parts(page([(None, {"a": peak})], title=""))
    assert (arrays[0, 0, "pattern"][0, :, 0] == [0.0, 2.0**-26, 1.0]).all()  # 2^15 is the largest that is stored


def test_a_limit_is_kept_and_named():
    snapshots = [(i, {"a": view((0, 1), (2, 7, 11)), "b": view((5,), (2, 3, 3), ())}) for i in range(3)]
    options = dict(title="é<", tokens={"a": ([["é"] * 7] * 2, [[" "] * 11] * 2)})
    size = len(page(snapshots, **options).encode())
    assert len(page(snapshots, **options, limit=size).encode()) == size  # exactly the limit is fine
    assert len(page(snapshots, **options, limit=size - 1).encode()) < size  # with coarser numbers
    with pytest.raises(ValueError, match=r"larger than its limit of 0\.\d+ MB: give fewer layers, .*larger limit"):
        page(snapshots, **options, limit=size - 10_000)


def many(n=40, gradients=("dS", "dP")):
    return [(None, {"a": view(shape=(1, n, n), heads=range(16), gradients=gradients)})]


def test_what_is_large_gets_coarser_numbers_and_then_fewer_gradients():
    snapshots = many()
    layer = snapshots[0][1]["a"]
    limit = 10**6
    for steps, left_out in [(None, []), (127, []), (31, []), (31, ["dP"]), (15, ["dP"])]:
        text = page(snapshots, title="", limit=limit)
        limit = len(text.encode()) - 1  # too small for the same again
        header, arrays = parts(text)
        assert (header["precision"], header["leftOut"]) == (steps, left_out)
        kinds = {"pattern": layer.pattern, **layer.gradients}
        for kind in header["layers"][0]["kinds"]:
            x, got = kinds[kind], arrays[0, 0, kind]
            largest = np.abs(x).max((0, 2, 3), keepdims=True)
            roots = [np.sqrt(np.abs(a) / largest) for a in (x, got)]
            assert np.abs(roots[0] - roots[1]).max() < (0.51 / steps if steps else 1e-3) and (got * x >= 0).all()
        assert ("dP" in header["layers"][0]["kinds"]) == (not left_out)


def test_cells_that_no_head_sees_are_left_out_and_scale_nothing():
    layer = view(shape=(2, 5, 5), heads=(0, 3))
    layer.pattern *= np.tril(np.ones((5, 5)))
    layer.pattern[1, 1, 4, 2] = 0.0  # one head's weight is rounded to 0: the other sees it
    layer.gradients["dP"][:, :, 0, 4] = 1e6  # the mask hides these
    header, arrays = parts(page([(None, {"a": layer})], title=""))
    seen = np.broadcast_to(np.tril(np.ones((5, 5))), (2, 2, 5, 5))
    np.testing.assert_allclose(arrays[0, 0, "dP"], layer.gradients["dP"] * seen, rtol=5e-4)
    assert max(header["peaks"][0][0]["dP"]) < 1 and (arrays[0, 0, "dS"][1, 1, 4, 2] != 0)


def test_sizes_by_token_come_back():
    layer = view(heads=(1, 2))
    layer.by_token = {"dq": np.random.default_rng(0).random((2, 2, 3)), "dk": np.zeros((2, 2, 4))}
    _, arrays = parts(page([(None, {"a": layer})], title=""))
    for name, x in layer.by_token.items():
        np.testing.assert_allclose(arrays[0, 0, name], x, rtol=5e-4)
    layer.by_token["dq"] = np.ones((2, 2, 5))
    with pytest.raises(ValueError, match=r"'dq' of its by_token is \(2, 2, 5\)"):
        page([(None, {"a": layer})], title="")


def test_write_makes_folders(tmp_path):
    path = write(tmp_path / "a" / "b.html", [(None, {"a": view()})], title="ü")
    assert path == tmp_path / "a" / "b.html" and path.read_text("utf-8") == page([(None, {"a": view()})], title="ü")


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
        ([(None, changed(heads=[], pattern=np.ones((2, 0, 3, 4)), gradients={}))], {}, "layer a.attn: the pattern"),
        ([(None, changed(heads=[1]))], {}, r"layer a.attn: the pattern of 1 heads must be \(B, 1, T, S\)"),
        ([(None, changed(pattern=np.ones((2, 3, 4))))], {}, "layer a.attn: the pattern"),
        ([(None, changed(pattern=np.full((2, 2, 3, 4), np.nan)))], {}, "layer a.attn: the pattern .* finite numbers"),
        (
            [(None, changed(gradients={"dP": np.ones((2, 2, 4, 3))}))],
            {},
            r"a.attn: 'dP' of its gradients is \(2, 2, 4,",
        ),
        ([(None, changed(heads=[1, 1]))], {}, "layer a.attn: its heads must be different numbers"),
        ([(None, changed(gradients={"pattern": np.ones((2, 2, 3, 4))}))], {}, "no gradient may be called 'pattern'"),
        ([(None, changed(stats={"norm": np.ones(3)}))], {}, r"a.attn: 'norm' of its stats is \(3,\)"),
        ([(None, {"a": view(), "b": view(shape=(1, 3, 4))})], {}, r"layers have \[1, 2\] sequences"),
        ([(0, {"a": view()}), (9, {"b": view()})], {}, r"layers at step 9 are \[\('b', "),
        ([(0, {"a": view()}), (9, {"a": view(shape=(2, 4, 4))})], {}, "layers at step 9 are"),
        ([(0, {"a": view()}), (9, {"a": view(gradients=())})], {}, "layers at step 9 are"),
        ([(0, {"a": view()}), (9, {"a": view((0, 3))})], {}, "layers at step 9 are"),
        ([(None, {"a": view()})], dict(tokens=[list("abc")] * 2), "layer a has 2 sequences of 4 keys.*2 of"),
        ([(None, {"a": view()})], dict(tokens=[list("abc")]), "layer a has 2 sequences of 3 queries.*1 of"),
        ([(None, {"a": view()})], dict(tokens=[]), "layer a has 2 sequences of 3 queries.*0 of"),
        ([(None, {"a": view()})], dict(tokens={"aa": ([], [])}), r"tokens are given for \['aa'\]"),
        ([(None, {"a": view()})], dict(losses=([1, 2], [1.0])), "losses: as many steps as values"),
    ],
)
def test_bad_input(snapshots, options, message):
    with pytest.raises(ValueError, match=message):
        page(snapshots, title="", **options)


@pytest.mark.parametrize("steps", [None, 31, 15])
def test_the_size_is_estimated_before_the_work_is_done(steps, monkeypatch):
    """Also of numbers of which a few rows, that the estimate may not look at, are far larger than others."""
    given = view(range(6), (2, 160, 160), seed=3)
    for x in given.gradients.values():
        x[:, :, 77] *= 1e4
    (frames,) = arrays = document._checked([(None, {"a": given})])
    seen = [[packed.seen_cells(kinds["pattern"]) for kinds in frames]]
    tops = [[document._peaks(*frames, *seen[0])]]
    size = sum(map(len, packed.chunks(arrays, seen, tops, [[{}]], steps, 10**9)))
    assert 0.9 * size < packed.estimate(arrays, seen, tops, steps) < 1.4 * size
    monkeypatch.setattr(packed, "chunks", lambda *args: pytest.fail("it was tried"))
    with pytest.raises(ValueError, match="larger than its limit"):
        page([(None, {"a": given})], title="", limit=50_000)
