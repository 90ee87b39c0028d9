"""Where the CUDA sources are: the one folder of them has two addresses."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def find_kernels() -> Path:
    """The folder of the .cu and .cuh files. Raises FileNotFoundError, naming the places searched.

    A wheel carries them inside the package; a checkout, editable install included, has them beside it.
    """
    places = PACKAGE / "kernels", PACKAGE.parent / "kernels"
    for place in places:
        if (place / "common.cuh").is_file():  # a known file, since any folder may be called kernels
            return place
    raise FileNotFoundError(f"minigrad's CUDA sources are in neither {places[0]} nor {places[1]}: install it again")
