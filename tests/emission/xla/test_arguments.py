"""What a launcher is asked for, and refuses before anything starts."""

import pytest

from topos.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "2", "--here", "1", "x.py"], "processes on several hosts want --coordinator ADDRESS:PORT"),
        (["--first", "1", "x.py"], "--first 1 and --here 1 are not among 1 processes"),
        (["--processes", "0", "x.py"], "argument --processes: wants a whole number of at least 1, got '0'"),
        ([], "the following arguments are required: script, arguments"),
    ],
)
def test_arguments_are_checked(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", *arguments]) == 2
    assert message in capsys.readouterr().err
