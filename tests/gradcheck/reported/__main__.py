"""Print which reported mistakes gradcheck finds at their natural inputs. minigrad/gradcheck/README.md gives the counts.

python -m tests.gradcheck.reported
"""

import time
import warnings
from functools import partial

from minigrad.gradcheck import GradcheckError, GradcheckWarning, gradcheck

from . import REPORTS
from .report import drawn, tensors


def objection(report, function):
    """What gradcheck raises or warns of about the function at the natural input of the report, or None."""
    options = report.natural.params
    report.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", GradcheckWarning)
        try:
            gradcheck(partial(function, **options), *tensors(drawn(report)))
        except Exception as error:  # a verdict, or what the function itself raised in one of the probes
            return error
    return None


def verdict(report):
    if (found := objection(report, report.right)) is not None:
        return "warns of the right one" if isinstance(found, GradcheckWarning) else "objects to the right one"
    found = objection(report, report.bug)
    if found is None or isinstance(found, GradcheckWarning):
        return "not caught" if found is None else "warned of"
    return "caught" if isinstance(found, GradcheckError) else f"caught: {type(found).__name__}"


if __name__ == "__main__":
    counts: dict[str, int] = {}
    print("| mistake | report | verdict | s |\n|---|---|---|---|")
    for report in REPORTS:
        began = time.perf_counter()
        word = verdict(report)
        counts[word.partition(":")[0]] = counts.get(word.partition(":")[0], 0) + 1
        seconds = time.perf_counter() - began
        print(f"| {report.name} | {report.source} | {word} | {seconds:.1f} |", flush=True)
    print(f"\n{len(REPORTS)} mistakes: {', '.join(f'{n} {word}' for word, n in counts.items())}")
