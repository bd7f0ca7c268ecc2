"""The glossary has two sentences a term, each word once, and lights boxes that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lessons.glossary import GLOSSARY, load_glossary, not_on_the_map
from lessons.loader import LessonError
from lessons.map_names import DOCUMENT, read_map

TERMS = """---
terms:
  - term: Block
    also: [page]
    says: Room for some tokens. It is given as a whole.
    box: block-manager
    see: [Token]
  - term: Token
    says: A part of a word. Limits are counted in it.
    box: async-engine
"""


def test_the_projects_own_terms_are_in_order_and_on_their_maps() -> None:
    terms = load_glossary()
    assert len(terms) >= 50
    assert [term.term for term in terms] == sorted((t.term for t in terms), key=str.casefold)
    assert list(not_on_the_map(terms, read_map(DOCUMENT))) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (" It is given as a whole.", "", 5, "said in 2 sentences"),
        ("also: [page]", "also: [token]", 8, "`Token` stands for Block already"),
        ("term: Token", "term: block", 8, "`block` stands for Block already"),
        ("see: [Token]", "see: [Tokens]", 3, "names `Tokens`, which is no other term"),
        ("see: [Token]", "see: [Block]", 3, "names `Block`, which is no other term"),
        ("    box: async-engine\n", "", 8, "Field required"),
        ("term: Token", "trem: Token", 8, "did you mean `term`?"),
        ("---\n", "", 1, "begin the file with a line ---"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    path = tmp_path / GLOSSARY.name
    path.write_text(TERMS)
    assert len(load_glossary(path)) == 2
    path.write_text(TERMS.replace(old, new, 1))
    with pytest.raises(LessonError) as caught:
        load_glossary(path)
    problem = caught.value.problems[0]
    assert problem.line == line and says in problem.message


def test_a_box_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / GLOSSARY.name
    path.write_text(TERMS.replace("box: async-engine", "box: engine-core"))
    (problem,) = not_on_the_map(load_glossary(path), read_map(DOCUMENT))
    assert "Token: there is no box 'engine-core'" in problem
    path.write_text(TERMS.replace("box: async-engine", "box: a\n    document: b.json"))
    (problem,) = not_on_the_map(load_glossary(path), read_map(DOCUMENT))
    assert "no document 'b.json'" in problem
