"""The live engine: a small, real vLLM V1 in the page's process; it knows nothing of the page."""

import os

# Must be set before torch is imported. By default OpenMP's idle threads spin; on a machine whose
# cores are shared with a web server that made one decode step take 100 to 600 ms instead of 60.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
