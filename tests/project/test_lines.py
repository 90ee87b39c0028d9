"""`make lines` counts code lines."""

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
