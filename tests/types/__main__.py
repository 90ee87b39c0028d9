"""python -m tests.types brings up to date what follows from the sources: annotations that public functions lack, as far
as vocabulary.py knows them, and minigrad/ops/signatures.pyi. It prints what is left to be said by hand."""

from . import stubs
from .annotate import annotate

if __name__ == "__main__":
    left = annotate()
    stubs.STUB.write_text(stubs.stub())
    print("\n".join([*left, *stubs.left]) or "nothing is left to be said by hand")
