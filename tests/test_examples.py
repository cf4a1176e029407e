"""The examples run, print what they say they print, and what they tell is true."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="install polymargin with its tables extra")

EXAMPLES = Path(__file__).parent.parent / "examples"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def output():
    """What an example prints, by its name; each is run once."""
    printed = {}

    def run(name, capsys):
        if name not in printed:
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
            printed[name] = capsys.readouterr().out
        return printed[name]

    return run


def promised(name):
    """What the example's docstring says that it prints."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]
    return [line[4:] for line in text.split("It prints:\n\n")[1].rstrip().split("\n")]


def close(number, stated):
    """Whether a number is the one that is stated, give or take one in the last place."""
    places = len(stated.partition(".")[2])
    return abs(float(number) - float(stated)) < 1.5 * 10.0**-places


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_prints_what_it_says(name, output, capsys):
    lines, stated = output(name, capsys).splitlines(), promised(name)
    assert [NUMBER.sub("#", line).split() for line in lines] == [
        NUMBER.sub("#", line).split() for line in stated
    ]
    for line, expected in zip(lines, stated, strict=True):
        pairs = zip(NUMBER.findall(line), NUMBER.findall(expected), strict=True)
        assert all(close(number, other) for number, other in pairs), f"{line!r} is not {expected!r}"


def numbers_after(text, word):
    return [float(number) for number in re.findall(rf"(?:{word})\s+(\d+\.\d+)", text)]


def test_migration_keeps_the_labels_and_improves_the_probabilities(output, capsys):
    text = output("migrate_from_svc", capsys)
    assert "SVC's label to 100.0% of the rows" in text
    searched, same, chosen = numbers_after(text, "log-loss")
    assert chosen < same < searched


def test_expected_loss_is_near_the_one_found(output, capsys):
    text = output("calibrated_csv", capsys)
    expected, found = map(float, re.search(r"log-loss: (\S+) expected.*, (\S+) on", text).groups())
    assert abs(expected - found) < 0.15
    for row in re.findall(r"^\d+ +([\d. ]+)", text, re.MULTILINE):
        assert sum(map(float, row.split())) == pytest.approx(1.0, abs=0.02)


def test_votes_tell_more_than_the_majority(output, capsys):
    text = output("soft_labels", capsys)
    votes, majority = numbers_after(text, "votes|majority")
    assert votes < majority


def test_own_codebook_has_rows_of_its_own(output, capsys):
    text = output("own_codebook", capsys)
    rows = [int(number) for number in re.search(r"\[(.*)\]", text).group(1).split(", ")]
    assert rows[0] == rows[3] == rows[1] + rows[2]
    assert "no column separates class 0 from class 1" in text


def test_own_decoder_learns_and_is_good(output, capsys):
    text = output("own_decoder", capsys)
    assert "learned from outputs that are leave-one-out" in text
    assert max(numbers_after(text, "log-loss")) < 0.15
