"""`make lines` counts code lines, and the figures of minigrad/README.md are up to date."""

import re

import pytest

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


PACKAGES = (lines.ROOT / "minigrad" / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.*?`) \|.*\| ([\d,]+) \|$", PACKAGES, re.M)
FILES = re.findall(r"`([\w./]+\.(?:py|cu))` \((\d+)\)", PACKAGES)


FOLDERS, _ = lines.counted()


def size(package):
    """The code lines of a package: a folder of minigrad/, such as "ops/", or a file."""
    path = lines.ROOT / "minigrad" / package
    if path.is_dir():
        return FOLDERS[f"minigrad/{path.name}"]
    return lines.code_lines(path.name, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("names, stated", ROWS)
def test_the_table_of_packages_states_code_lines(names, stated):
    counted = sum(size(name) for name in re.findall("`(.*?)`", names))
    assert int(stated.replace(",", "")) == pytest.approx(counted, rel=0.1, abs=10)


@pytest.mark.parametrize("name, stated", FILES)
def test_the_order_of_reading_states_lines(name, stated):
    counted = (lines.ROOT / "minigrad" / name).read_text(encoding="utf-8").count("\n")
    assert int(stated) == pytest.approx(counted, rel=0.1, abs=5)


def test_figures_were_found():
    assert len(ROWS) > 15 and len(FILES) > 8
