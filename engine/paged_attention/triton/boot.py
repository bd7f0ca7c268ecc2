"""Starts a function of this project in a process without Transformers: `boot.py module:function`.

The package around this one imports Transformers, and that takes seconds, 300 MB, and triton with it
before the function could say how it wants triton. Here the package is there in name only, so that
its light modules can be imported. A script and no module: importing it would be too late.
"""

import importlib
import sys
import types
from pathlib import Path

PARENT = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    package = types.ModuleType("engine.paged_attention")
    package.__path__ = [str(PARENT)]
    sys.modules[package.__name__] = package
    sys.path.insert(0, str(PARENT.parents[1]))
    module, _, function = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), function)()
