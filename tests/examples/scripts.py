"""The scripts of examples/, as modules."""

import importlib.util
import sys

from .. import ROOT

EXAMPLES = ROOT / "examples"


def load(name):
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))  # as where one is run as a script
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
