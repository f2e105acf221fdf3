"""Texts that are made while others are being written."""

import ctypes

import pytest

pytest.importorskip("llvmlite")

from topos.backend.native import ahead, compiler, counts, emission, llvm, target
from topos.backend.native.emission import CompilationError, Wanted

from .texts import adding


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(ahead, "allowed", lambda: 2)


def called(library, name, x):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses[name])(x)


def wanted(text):
    return Wanted(text, f"key {text}", "f")


def test_the_same_objects():
    texts = [adding(at, f"f{at}") for at in range(1000, 1010)]
    begun = ahead.Ahead(target.current(), wanted)
    for text in texts:
        begun.offer(text)
    keys, objects = begun.keys(), begun.objects()
    assert f"key {texts[0]}" in keys and keys == objects.keys()
    alone = {text: llvm.ask(lambda text=text: emission.emitted(wanted(text), target.current(), 0)) for text in texts}
    assert objects == {f"key {text}": alone[text] for text in texts if f"key {text}" in keys}
    assert begun.keys() == begun.objects().keys() == frozenset()


def test_a_library_takes_what_was_begun():
    texts = [adding(at, f"f{at}") for at in range(1100, 1110)]
    before, begun = counts.compiles(), compiler.begun(target.current())
    for text in [*texts, *texts]:
        begun.offer(text)
    library = compiler.compiled(texts, ahead=begun)
    assert [called(library, f"f{at}", 1) for at in range(1100, 1110)] == list(range(1101, 1111))
    made = counts.compiles().since(before)
    assert (made.compiled, made.loaded) == (10, 0)


def test_what_is_there_is_not_made_again():
    text = adding(1200)
    library = compiler.compiled(text)
    begun = compiler.begun(target.current())
    begun.offer(text)
    assert begun.keys() == frozenset()
    assert compiler.compiled(text, ahead=begun) is library


def test_one_processor_begins_nothing(monkeypatch):
    monkeypatch.setattr(ahead, "allowed", lambda: 1)
    begun = ahead.Ahead(target.current(), wanted)
    begun.offer(adding(1300))
    assert begun.keys() == frozenset()


def test_an_error_is_left_to_who_asks():
    begun = compiler.begun(target.current())
    begun.offer("this is no text")
    begun.offer(adding(1400))
    with pytest.raises(CompilationError, match="LLVM refuses a text without functions"):
        compiler.compiled("this is no text", ahead=begun)
    assert called(compiler.compiled(adding(1400)), "f", 1) == 1401


def test_what_nobody_asks_for_is_let_go():
    begun = compiler.begun(target.current())
    begun.offer(adding(1500))
    begun.abandon()
    assert begun.keys() == begun.objects().keys() == frozenset()
    assert llvm.beside(lambda: 1).result() == llvm.ask(lambda: 1) == 1
