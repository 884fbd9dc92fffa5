"""Lab text to tree: YAML without its surprises, and bounded whatever the text."""

import pytest

from netem.topology.errors import LabError
from netem.topology.tree import MAX_DEPTH, MAX_NODES, MAX_TEXT, read_tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("on: off", {"on": "off"}),
        ("1: 010", {"1": "010"}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("a: 0x11", {"a": 17}),
        ("a: -3", {"a": -3}),
        ("a: +7", {"a": "+7"}),
        ("a: 1.5", {"a": 1.5}),
        ("a: 1_000", {"a": "1_000"}),
        ('a: "1"', {"a": "1"}),
        ("a: true\nb: yes", {"a": True, "b": "yes"}),
        ("a:\nb: ~\nc: null", {"a": None, "b": None, "c": None}),
        ("{a: h0:p0, h0->h1: 20%}", {"a": "h0:p0", "h0->h1": "20%"}),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ("", None),
        ("5", 5),
        ("9" * 30, "9" * 30),
    ],
)
def test_scalars_mean_what_they_look_like(text, tree):
    assert read_tree(text) == tree


def test_an_alias_is_a_copy():
    tree = read_tree("a: &x {k: 1}\nb: *x")
    assert tree["a"] is not tree["b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "a: written twice (lines 1 and 3)"),
        ("a: [{b: 1, b: 2}]", "a[0].b: written twice (line 1)"),
        ("a: 1\n---\nb: 2", "line 2: a second document begins; a lab is one"),
        ("a: &x [*x]", "line 1: *x refers to nothing before it"),
        ("a: *x", "line 1: *x refers to nothing before it"),
        ("a: !!python/name:os.system x", "line 1: a lab file has no tags"),
        ("{[a]: 1}", "line 1: a key is one word, not a mapping or a list"),
        ("a: &x b\n*x : 1", "line 2: an alias (*x) cannot be a key"),
        ("a: [", "line 1, column 5: not YAML: "),
        ("a: 1\n}", "line 2, column 1: not YAML: "),
        ('a: "\\UFFFFFFFF"', "not YAML: an escape that names no character"),
        ("\x00", "not YAML: unacceptable character"),
        ("\ud800", "not YAML: unacceptable character"),
        ("x" * (MAX_TEXT + 1), "the text has 262145 characters; at most 262144"),
    ],
)
def test_what_cannot_be_read_is_refused_on_one_line(text, problem):
    with pytest.raises(LabError) as refusal:
        read_tree(text)
    (line,) = refusal.value.problems
    assert line.startswith(problem)
    assert line.isprintable()


def test_all_duplicate_keys_are_found():
    with pytest.raises(LabError) as refusal:
        read_tree("a: 1\na: 2\nb: {c: 1, c: 2}")
    assert len(refusal.value.problems) == 2


def test_depth_is_bounded_before_the_stack_is():
    with pytest.raises(LabError, match=f"nested deeper than {MAX_DEPTH} levels"):
        read_tree("[" * 50_000)
    with pytest.raises(LabError, match=f"nested deeper than {MAX_DEPTH} levels"):
        read_tree("".join(" " * i + "a:\n" for i in range(400)) + " " * 400 + "b")


def test_aliases_cannot_grow_without_bound():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 10):
        bomb += f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n"
    with pytest.raises(LabError, match=f"more than {MAX_NODES} values"):
        read_tree(bomb)
