"""Lessons and labs: data that a page plays and `python -m lessons check` proves on a real engine.

No box of the map, no counterpart in vLLM. A file of `tours/` or `labs/` is one lesson (`format`);
it sends requests into an engine's front end, steps it (`stage`), and reads numbers and answers from
its log (`probes`, `expressions`). Nothing here knows Streamlit or the page.
"""
