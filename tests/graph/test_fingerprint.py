"""The digest of a sealed spec."""

from topos import Network, Tape


def spec(factor: float = 2.0, name: str | None = None) -> Network:
    tape = Tape()
    x = tape.input(shape=[2, 3], name=name)
    tape.differentiate((x * factor).relu().sum(), [x])  # leaves of rank 0 and above
    return tape.into_network()


def test_the_same_program_has_the_same_fingerprint_whatever_its_names() -> None:
    assert spec().fingerprint == spec(name="x").fingerprint


def test_another_constant_has_another() -> None:
    assert spec(2.0).fingerprint != spec(3.0).fingerprint
