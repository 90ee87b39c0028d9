"""python -m tests.types brings up to date what follows from the sources: annotations that public functions lack, as far
as vocabulary.py knows them; minigrad/ops/signatures.pyi; and `__all__` and the docstring of minigrad. It prints what is
left to be said by hand."""

from . import stubs
from .annotate import annotate
from .contents import FILE, init

if __name__ == "__main__":
    left = annotate()
    stubs.STUB.write_text(stubs.stub())
    FILE.write_text(init())
    print("\n".join([*left, *stubs.left]) or "nothing is left to be said by hand")
