"""A kernel's walk over the real pages, watched program by program (box `paged-attn`).

`rows.py` finds in the log what to trace, `inputs.py` takes query and pages out of the engine, and
`tracer.py` has a process with Triton's interpreter (`engine/paged_attention/triton/process.py`) run
the kernel over them; `interpret.py` and `recorder.py` are what runs there. No counterpart in vLLM.
"""
