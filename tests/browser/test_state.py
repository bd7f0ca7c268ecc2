"""Whatever the patches and the moves: the state at a record is the patches up to it, merged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Few names, so that patches meet; some are JavaScript's own.
NAMES = st.sampled_from(["a", "b", "7", "12", "__proto__", "constructor"])
VALUES = st.none() | st.integers(0, 3) | st.sampled_from(["", "x"]) | st.just([1, {"a": None}])
CHANGES = st.recursive(
    st.dictionaries(NAMES, VALUES, max_size=3),
    lambda inner: st.dictionaries(NAMES, VALUES | inner, max_size=3),
    max_leaves=12,
)
EVENT: dict[str, Any] = {"kind": "event"}
RECORDS = st.lists(
    CHANGES.map(lambda changes: {"kind": "patch", "changes": changes}) | st.just(EVENT), max_size=30
)

# All states on a path, and the checkpoints as they were made and as they are in the end.
STATES_ON = """async ({ base, records, path, every }) => {
  const { Timeline } = await import("/views/assets/core/state.js");
  const line = new Timeline(JSON.parse(base), JSON.parse(records), every);
  const made = [];
  const states = path.map((index) => {
    const text = JSON.stringify(line.moveTo(index));
    for (const { state } of line.checkpoints.slice(made.length)) made.push(JSON.stringify(state));
    return text;
  });
  return { states, made, kept: line.checkpoints.map(({ state }) => JSON.stringify(state)) };
}"""


def merged(target: Any, changes: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(changes, dict):
        return changes
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(base=CHANGES, records=RECORDS, every=st.integers(1, 9), data=st.data())
def test_no_move_and_no_checkpoint_changes_what_a_state_is(
    page: Page, base: Any, records: list[Any], every: int, data: st.DataObject
) -> None:
    path = data.draw(st.lists(st.integers(-1, len(records) - 1), min_size=1, max_size=20))
    states = [merged({}, base)]
    for record in records:
        states.append(merged(states[-1], record.get("changes", {})))
    found = page.evaluate(
        STATES_ON,
        {
            "base": json.dumps(base),
            "records": json.dumps(records),
            "path": path,
            "every": every,
        },
    )
    assert [json.loads(text) for text in found["states"]] == [states[at + 1] for at in path]
    assert found["kept"] == found["made"]


def test_what_did_not_change_is_the_same_object_in_a_checkpoint(page: Page) -> None:
    """Or a checkpoint would take as much memory as a pool, and as much time."""
    copied = page.evaluate(
        """async () => {
          const { Timeline } = await import("/views/assets/core/state.js");
          const blocks = Object.fromEntries(Array.from({ length: 50 }, (_, id) => [id, { n: 0 }]));
          const changes = (id) => ({ blocks: { [id]: { n: 1 } } });
          const records = [3, 4, 5, 6].map((id) => ({ kind: "patch", changes: changes(id) }));
          const line = new Timeline({ blocks }, records, 2);
          line.moveTo(3);
          const [first, second] = line.checkpoints.map(({ state }) => state.blocks);
          return Object.keys(first).filter((id) => first[id] !== second[id]);
        }"""
    )
    assert copied == ["3", "4"]
