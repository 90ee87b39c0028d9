"""python -m tests.types brings up to date what follows from the sources: `__all__` and the docstring of minigrad, and
the tables of contents in others; annotations that public functions lack, as far as vocabulary.py knows them; and
minigrad/ops/signatures.pyi. It prints what is left to be said by hand."""

import minigrad

from . import contents, stubs
from .annotate import annotate

if __name__ == "__main__":
    contents.FILE.write_text(contents.init())
    for path, text in [*map(contents.with_page, contents.PAGES), contents.with_methods()]:
        path.write_text(text)
    minigrad.__all__ = [*contents.modules(), *contents.names()]  # as the file has it now
    left = annotate()
    stubs.STUB.write_text(stubs.stub())
    print("\n".join([*left, *stubs.left]) or "nothing is left to be said by hand")
