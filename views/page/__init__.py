"""The page around the map: Streamlit's script, the composer, the settings, how to connect."""
