"""Start of a worker process: `python -P launch.py SIDE JOB.json`, where SIDE_side.py does the work.

The package is loaded under the name `_verify`, without the folder on `sys.path`: in the process of the converted
program neither torch nor jaxmigrate can be imported, and the user's modules may have any names.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path


def main() -> None:
    side, job = sys.argv[1], Path(sys.argv[2])
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "_verify", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["_verify"] = package
    spec.loader.exec_module(package)
    options = json.loads(job.read_text(encoding="utf-8"))["options"]
    confine = importlib.import_module("_verify.confine").confine
    confine(job.parent, int(options["memory"] * (1 << 30)), side.startswith("jax") and options["device"] == "gpu")
    sys.argv = [str(job)]
    importlib.import_module(f"_verify.{side}_side").work(job)


if __name__ == "__main__":
    main()
