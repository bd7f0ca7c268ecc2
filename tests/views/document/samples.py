"""Documents for the tests of the architecture document."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
OURS = ROOT / "architecture.json"
SEED = ROOT / "tests" / "documents" / "seed.architecture.json"
# Maps of other systems, written for these tests.
FOREIGN = sorted(set(SEED.parent.glob("*.json")) - {SEED})
OTHERS = ROOT.parent / "shared" / "documents"


def sample() -> dict[str, Any]:
    """Return a small legal document that nothing can be said against."""
    names = ["client-req", "async-engine", "scheduler", "block-manager", "gpu-runner", "cuda-graph"]
    names += ["paged-attn", "physical-vram", "shared-gqa"]
    components = [
        {
            "id": name,
            "type": "external" if name == "client-req" else "backend",
            "label": name,
            "pos": [i * 200, 0],
            "size": [120, 60],
        }
        for i, name in enumerate(names)
    ]
    chain = zip(names, [*names[1:], names[0]], strict=True)
    return {
        "schema_version": 1,
        "diagram_type": "architecture",
        "meta": {
            "title": "Sample",
            "views": [{"id": "all", "label": "All", "focus": names}],
        },
        "components": components,
        "boundaries": [{"kind": "region", "label": "Inside", "wraps": names[1:]}],
        "connections": [{"from": a, "to": b, "label": "next"} for a, b in chain],
        "cards": [{"dot": "cyan", "title": "Card", "items": ["One."]}],
    }


def with_value(*location: Any) -> dict[str, Any]:
    """Return the sample with one value set: `with_value("meta", "title", "New")`."""
    *parents, last, value = location
    document = copy.deepcopy(sample())
    place: Any = document
    for step in parents:
        place = place[step]
    place[last] = value
    return document


def without(*location: Any) -> dict[str, Any]:
    """Return the sample with one value taken out."""
    *parents, last = location
    document = copy.deepcopy(sample())
    place: Any = document
    for step in parents:
        place = place[step]
    del place[last]
    return document


def text_of(document: Any) -> str:
    """Return a document as JSON."""
    return json.dumps(document)
