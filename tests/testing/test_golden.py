from pathlib import Path

import pytest

from topos.testing import assert_golden

PLUGIN = ("-p", "topos.testing.pytest_plugin", "-p", "no:cacheprovider")


def message(text: str, file: Path) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_golden(text, file)
    return str(caught.value)


def test_a_file_holds_the_text_and_one_newline(tmp_path: Path) -> None:
    file = tmp_path / "new" / "text.txt"
    assert_golden("one\n\nzwölf", file, update=True)
    assert file.read_bytes() == b"one\n\nzw\xc3\xb6lf\n"
    assert_golden("one\n\nzwölf", file)
    assert_golden("one\n\nzwölf", str(file))


def test_the_failure_is_a_diff_from_the_file_to_the_text(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("a\nb\nc\n")
    assert message("a\nB\nc", file) == (
        "golden: the text differs from text.txt\n--- expected\n+++ actual\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"
    )


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        (b"a", "-'a' without a newline"),
        (b"a\r\n", r"-'a\r'"),
        (b"a \n", "-'a '"),
        (b"a\n\n", "-"),
        (b"\tb\n", r"-'\tb'"),
        (b"\xff\n", r"-\xff"),
        (b"", "+a"),
    ],
)
def test_what_the_eye_would_miss_is_spelled_out(tmp_path: Path, kept: bytes, shown: str) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(kept)
    assert shown in message("a", file).split("\n")


def test_a_missing_file_says_how_to_write_it(tmp_path: Path) -> None:
    file = tmp_path / "none.txt"
    assert message("a", file) == f"golden: no file {file}; pytest --update-golden writes it"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini("[pytest]\n")  # the root of the project is here, whatever lies in the folders above
    pytester.makepyfile("def test_text(golden):\n    golden('new', 'text.txt')\n")
    folder = pytester.mkdir("tests") / "golden"
    folder.mkdir()
    (folder / "text.txt").write_text("old\n")
    return pytester


def kept(project: pytest.Pytester) -> str:
    return (project.path / "tests" / "golden" / "text.txt").read_text()


def test_the_option_rewrites(project: pytest.Pytester) -> None:
    project.runpytest_inprocess(*PLUGIN).assert_outcomes(failed=1)
    assert kept(project) == "old\n"
    project.runpytest_inprocess(*PLUGIN, "--update-golden").assert_outcomes(passed=1)
    assert kept(project) == "new\n"
    project.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=1)


def test_the_option_is_refused_in_ci(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = project.runpytest_inprocess(*PLUGIN, "--update-golden")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--update-golden is refused where CI is set*"])
    assert kept(project) == "old\n"
