"""What `make lines` counts, and that it fails where something has grown."""

import json

from . import lines

TEXT = '''"""A docstring
of two lines."""

import os  # one


def f(x):
    # a comment
    """Another."""
    return (x +
            1)
'''


def test_code_is_what_has_tokens_and_is_no_docstring():
    assert lines.of_python(TEXT) == (4, 14)
    assert lines.of_cuda("int a = 1;  // b\n\n/* c\nd */\n{ }\n") == (2, 7)


def test_a_folder_that_grows_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lines, "COUNTED", ("minigrad/optim", "kernels"))  # for the others it takes seconds
    monkeypatch.setattr(lines, "LIMITS", tmp_path / "lines.json")
    found = lines.folders()
    assert list(found) == ["kernels", "minigrad", "minigrad/optim"] and found["minigrad"] == found["minigrad/optim"]
    assert lines.main(["--write"]) == ""
    code, *more = found["kernels"]
    lines.LIMITS.write_text(json.dumps(found | {"kernels": [code - 1, *more]}))
    assert lines.main([]) == f"kernels: {code:,} code lines, where {code - 1:,} is the limit"
    assert f"{code:,}" in capsys.readouterr().out
