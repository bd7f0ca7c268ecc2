"""What is shown: `document` is the map, `page` the Streamlit page, `assets` what browsers run."""
