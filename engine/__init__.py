"""The live engine: a small, real vLLM V1 in the page's process; it knows nothing of the page."""

import os

# Must be set before torch is imported. By default OpenMP's idle threads spin for milliseconds; on a
# machine whose cores are shared with a web server that made one decode step take 100 to 600 ms
# instead of 60. Sleeping at once costs some 30 µs at each of a step's 130 products, 7 ms of 34. So
# they spin for as long as the short code between two products takes, some 25 µs, and not at all
# where the process has more of them than cores. Twice that is 2 ms less in a step that has the
# machine for itself, and a third more in two that share it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
