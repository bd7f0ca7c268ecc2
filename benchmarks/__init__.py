"""What is measured of Glassbox, one module a benchmark; README.md says what each figure means.

`python -m benchmarks [NAMES]` runs them. A module here has a function `measure(effort)` that
returns figures; `harness/` runs it in a process of its own, prints the table, writes the file.
"""

import engine  # noqa: F401  (sets OMP_WAIT_POLICY before any benchmark imports torch)
