"""Names of scopes: no two share a text, and the older form is read."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf import ScopeKey

NAMES = st.text(alphabet="a:%3A/. é\ud800\x00", min_size=0, max_size=6)
KEYS = st.one_of(
    NAMES.map(ScopeKey.private), st.tuples(NAMES, NAMES).map(lambda pair: ScopeKey.shared(*pair))
)


def names(key: ScopeKey) -> tuple[bool, str]:
    """What a key means: shared or not, and the name that counts."""
    return key.is_shared, key.node_id if key.scope_name is None else key.scope_name


@given(KEYS)
def test_a_text_names_the_scope_it_came_from(key: ScopeKey) -> None:
    """Whatever stands in a name, `::` too: reading the text gives the same scope."""
    assert ScopeKey.parse(str(key)) == key
    assert names(ScopeKey.parse(str(key))) == names(key)


@given(KEYS, KEYS)
def test_texts_are_equal_only_for_one_scope(one: ScopeKey, two: ScopeKey) -> None:
    """Two scopes share neither text nor equality nor hash by accident."""
    same = names(one) == names(two)
    assert (str(one) == str(two)) == (one == two) == same
    if same:
        assert hash(one) == hash(two)


def test_a_shared_scope_is_known_by_its_name_alone() -> None:
    """Which node names a shared scope does not matter; a private one is the node's."""
    assert ScopeKey.shared("editor", "chat") == ScopeKey.shared("writer", "chat")
    assert ScopeKey.shared("editor", "chat") != ScopeKey.shared("editor", "other")
    assert ScopeKey.private("chat") != ScopeKey.shared("chat", "chat")
    assert ScopeKey.private("a") != ScopeKey.private("b")
    assert ScopeKey.private("a") != "a"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("node_id", ScopeKey.private("node_id")),
        ("node_a::shared_context", ScopeKey.shared("node_a", "shared_context")),
        ("node_b::shared_context", ScopeKey.shared("node_a", "shared_context")),
        ("::shared_context", ScopeKey.shared("", "shared_context")),
        ("a%3A%3Ab", ScopeKey.private("a::b")),
    ],
)
def test_the_older_form_is_read(text: str, key: ScopeKey) -> None:
    """`node` and `node::scope`, as earlier documents write them, name the scopes they meant."""
    assert ScopeKey.parse(text) == key


def test_what_is_written_is_plain_for_plain_names() -> None:
    """The usual names are not escaped."""
    assert [str(ScopeKey.private("node a")), str(ScopeKey.shared("x", "chat"))] == [
        "node a",
        "::chat",
    ]


def test_odd_names_all_have_a_text_of_their_own() -> None:
    """Names that look like another name's text stay apart."""
    odd = ["a", "a::b", "::a", "a::", "::", ":", "%3A", "a%3A%3Ab", "%", "%25", "a:b", ""]
    keys = [ScopeKey.private(name) for name in odd] + [ScopeKey.shared("", name) for name in odd]
    for one, two in itertools.combinations(keys, 2):
        assert str(one) != str(two)
