"""The architecture document: read, judged, laid out, bound to the engine; no Streamlit in here."""
