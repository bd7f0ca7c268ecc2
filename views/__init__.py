"""The page: the architecture document, its map, and what the map is bound to."""
