import os
import stat
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from topos.backend.native import cache, compiler, counts, objects, target
from topos.backend.native.cache import Cache, CacheWarning

from .texts import adding


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(cache, "_told", False)


FILL = """
    import ctypes, sys
    from topos.backend.native import counts
    from topos.backend.native.compiler import compiled
    def text(n): return f"define i64 @f{n}(i64 %x) {{\\n  %y = add i64 %x, {n}\\n  ret i64 %y\\n}}\\n"
    library = compiled(text(n) for n in range(20))
    for n in range(20):
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses[f"f{n}"])(1) == n + 1
    made = counts.compiles()
    print(made.compiled, made.loaded)
"""


def test_a_new_process_finds_what_another_left(script):
    assert script(FILL) == "20 0\n"
    assert script(FILL) == "0 20\n"


def test_a_narrower_processor_is_a_miss(script):
    if "avx" not in target.host().features:
        pytest.skip("levels of x86-64")
    assert script(FILL) == "20 0\n"
    assert script(FILL, TOPOS_CPU="x86-64") == "20 0\n"
    assert script(FILL, TOPOS_CPU="x86-64") == "0 20\n"
    assert script(FILL) == "0 20\n"


def test_another_option_version_or_text_is_another_key(monkeypatch):
    host, keys = target.host(), set()
    keys.add(objects._key("a", host))
    keys.add(objects._key("b", host))
    keys.add(objects._key("a", host._replace(features="")))
    keys.add(objects._key("a", host._replace(cpu="generic")))
    monkeypatch.setattr(objects, "OPTIONS", "others")
    keys.add(objects._key("a", host))
    monkeypatch.setattr(objects, "__version__", "0")
    keys.add(objects._key("a", host))
    monkeypatch.setattr(objects, "_versions", lambda: ("0.0",))
    keys.add(objects._key("a", host))
    assert len(keys) == 7


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "flipped", "renamed"])
def test_a_damaged_file_is_a_miss_with_one_warning(own_cache, damage):
    kept = Cache(own_cache)
    own_cache.mkdir()
    for key in ("a", "b"):
        kept.put(key, b"machine code of " + key.encode())
    whole = (own_cache / "a.object").read_bytes()
    content = {
        "cut": whole[:-3],
        "empty": b"",
        "foreign": b"something else",
        "flipped": whole[:-1] + b"?",
        "renamed": (own_cache / "b.object").read_bytes(),
    }[damage]
    (own_cache / "a.object").write_bytes(content)
    with pytest.warns(CacheWarning, match=r"^the cache of compiled code holds a damaged file, a\.object in ") as told:
        assert kept.get("a") is None
        assert kept.get("a") is None
    assert len(told) == 1
    kept.put("a", b"again")
    assert kept.get("a") == b"again"


def test_a_truncated_file_is_compiled_again(script, own_cache):
    assert script(FILL) == "20 0\n"
    damaged = sorted(own_cache.iterdir())[3]
    damaged.write_bytes(damaged.read_bytes()[:100])
    text = """
    import warnings
    warnings.simplefilter("ignore")
    """.rstrip()
    assert script(text + FILL) == "1 19\n"
    assert script(FILL) == "0 20\n"


def test_the_bound_removes_what_was_used_longest_ago(tmp_path):
    kept, content = Cache(tmp_path, limit_bytes=50_000), bytes(10_000)
    for at, key in enumerate("abcd"):
        kept.put(key, content)
        os.utime(tmp_path / f"{key}.object", (at, at))
    assert kept.get("a") == content
    kept.put("e", content)
    left = sorted(path.stem for path in tmp_path.iterdir())
    assert left == ["a", "d", "e"]
    for number in range(100):
        kept.put(f"k{number}", content)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 50_000


def test_clearing_leaves_what_is_not_ours(tmp_path):
    kept = Cache(tmp_path)
    kept.put("a", b"x")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "fresh.unfinished").write_text("another process is at it")
    (tmp_path / "old.unfinished").write_text("another process died")
    os.utime(tmp_path / "old.unfinished", (time.time() - 1e6,) * 2)
    kept.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh.unfinished", "notes.txt"]
    kept.clear()
    kept.put("a", b"x")
    assert kept.get("a") == b"x"


def test_an_unusable_folder_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOPOS_CACHE", str(tmp_path / "file" / "below"))
    assert cache.current() is None
    assert "f" in compiler.compiled(adding(71)).addresses


def test_a_folder_that_goes_away_is_no_cache(tmp_path):
    kept = Cache(tmp_path / "gone")
    kept.put("a", b"x")
    assert kept.get("a") is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_a_folder_that_others_may_write_is_no_cache(tmp_path, monkeypatch):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("TOPOS_CACHE", str(folder))
    assert cache.current() is None


def test_an_empty_setting_asks_for_none(monkeypatch, own_cache):
    monkeypatch.setenv("TOPOS_CACHE", "")
    assert cache.current() is None
    compiler.compiled(adding(72))
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, Path("/x")),
        ("linux", {"HOME": "/h"}, Path("/h/.cache")),
        ("darwin", {"HOME": "/h"}, Path("/h/Library/Caches")),
        ("win32", {"LOCALAPPDATA": "/l"}, Path("/l")),
    ],
)
def test_the_users_folder(monkeypatch, platform, environment, expected):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache._user_folder() == expected


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
def test_the_folder_is_made_for_this_user_alone(own_cache):
    assert cache.current().folder == own_cache
    assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700


def test_two_processes_fill_it_at_once(script):
    import threading

    outputs = []
    threads = [threading.Thread(target=lambda: outputs.append(script(FILL))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 2
    assert script(FILL) == "0 20\n"


def test_counts_name_their_reasons():
    before = counts.compiles()
    compiler.compiled(adding(81, "named"))
    counts.count("new shape", "step [3, 4]", 0.002)
    made = counts.compiles().since(before)
    assert made.by_reason == {counts.COLD: 1, "new shape": 1}
    assert (made.compiled, made.loaded) == (1, 0)
    assert [(event.reason, event.what) for event in made.recent] == [
        (counts.COLD, "named"),
        ("new shape", "step [3, 4]"),
    ]
    text = str(made).splitlines()
    assert text[0] == "1 compiled, 1 new shape"
    assert text[2] == "  step [3, 4]: new shape, 2.0 ms"
    assert str(counts.compiles().since(counts.compiles())) == "nothing compiled"
