"""What `make lines` counts, and that it fails where a total has grown, or its limit."""

import json
import subprocess

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


def test_code_is_what_is_no_comment_and_no_docstring():
    assert lines.code_lines("a.py", TEXT) == 4
    assert lines.code_lines("a.cu", "int a = 1;  // b\n\n/* c\nd */\n{ }\n") == 2
    assert lines.code_lines("a.html", "<p>\n<!-- no\nno -->\n</p>\n") == 2
    assert lines.code_lines("a.sh", "#!/bin/sh\n  # no\necho '#'\n") == 1
    assert lines.code_lines("a.json", "[1]\n") == 0


def test_a_total_that_grows_is_named_and_so_is_a_limit_that_rises(tmp_path, monkeypatch, capsys):
    def commit():
        for words in ["init"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-m", "c"]:
            subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    def written(text):
        (tmp_path / "tests/a.py").write_text(text)
        return lines.main([])

    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(lines, "ROOT", tmp_path)
    monkeypatch.setattr(lines, "LIMITS", tmp_path / "limits.json")
    (tmp_path / "README.md").write_text("two words\n")
    (tmp_path / "tests/a.py").write_text("x = 1\ny = 2\n")
    commit()
    assert lines.main(["--write"]) == ""
    assert json.loads(lines.LIMITS.read_text()) == {
        "minigrad and kernels": 0, "tests": 2, "examples": 0, "words of .md files": 2,
    }  # fmt: skip
    commit()
    assert written("x = 1\n") == ""
    assert written("x = 1\n" * 3) == "tests: 3, where 2 is the limit: take something away"
    assert lines.main(["--write"]).startswith("tests: 3") and "tests" in capsys.readouterr().out  # it does not rise so
    lines.LIMITS.write_text(lines.LIMITS.read_text().replace('"tests": 2', '"tests": 3'))
    assert lines.main([]) == "tests: the limit was 2 once: it never rises"
