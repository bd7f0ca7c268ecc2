"""A log for other programs: Perfetto's timeline, and tables for a spreadsheet.

No counterpart in vLLM. Both are made from one summary of the log (`summary.py`), so that they
agree, and from the log alone: an engine's, or that of a saved file (`python -m engine.export`).
"""
