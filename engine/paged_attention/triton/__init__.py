"""PagedAttention as Triton kernels, on a GPU and in Triton's interpreter (box `paged-attn`).

`kernels.py` is what runs, `launch.py` gives it its grid and pointers, `backend.py` plans a step.
Triton compiles for GPUs or interprets on a CPU, never both in one process, and importing
Transformers loads it; so `interpret.py` and `compile.py` do their part in a process of its own,
which `process.py` starts without Transformers.
"""
