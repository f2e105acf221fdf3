"""The figures become the tables that they should, and workloads that differ are refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import __main__ as command
from benchmarks import measure, results, table
from benchmarks.workloads import WORKLOADS


def row(workload: str, system: str, median_s: float, **others: Any) -> dict[str, Any]:
    spread = {"p10_s": 0.9 * median_s, "p90_s": 2 * median_s, "least_s": 0.8 * median_s, "samples": 10}
    memory = {"peak_mib": 100.0, "imported_mib": 40.0}
    return {
        "workload": workload,
        "system": system,
        "median_s": median_s,
        "first_s": 0.25,
        "import_s": 0.1,
        "results": [1.0],
        "notes": [],
        **spread,
        **memory,
        **others,
    }


FOUND = {
    "date": "2026-01-02",
    "command": "python -m benchmarks",
    "threads": 2,
    "machine": {
        "processor": "A processor",
        "architecture": "x86_64",
        "cores": 2,
        "memory_gib": 8,
        "system": "Linux",
        "python": "3.11",
    },
    "peak": {"threads": 2, "operations_per_s": 100e9, "bytes_per_s": 20e9},
    "versions": {"topos": "0.1.0", "torch": "2.13", "jax": "0.10"},
    "measurements": [
        row("w1", "topos", 5e-6),
        row("w1", "torch", 80e-6),
        row("w1", "jax", 10e-6),
        row("w2", "topos", 0.0004, notes=["interpreted: no kernel"]),
        row("w2", "torch", 0.0003),
    ],
    "failures": [{"workload": "w2", "system": "jax", "reason": "over 150 s"}],
}


def test_times_name_the_best_peer_and_the_ratio_to_it() -> None:
    assert table.times(FOUND, WORKLOADS).splitlines() == [
        "| one step | topos | torch | jax | topos / best peer | topos reaches |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `w1` scalar step | 5 us<br>4.5 us to 10 us | 80 us<br>72 us to 160 us "
        "| **10 us**<br>9 us to 20 us | 0.50 |  |",
        "| `w2` makemore MLP step | 400 us<br>360 us to 800 us<br>interpreted "
        "| **300 us**<br>270 us to 600 us |  | 1.33 | 5.47 GFLOP/s, 5% |",
    ]


def test_beginnings_start_with_the_import() -> None:
    assert table.beginnings(FOUND).splitlines()[2:] == [
        "| import | 100 ms | 100 ms | 100 ms |",
        "| `w1` | 250 ms | 250 ms | 250 ms |",
        "| `w2` | 250 ms | 250 ms |  |",
    ]


def test_memory_shows_ours_above_the_import() -> None:
    assert table.memory(FOUND).splitlines()[2:] == [
        "| after the import | 40 | 40 | 40 |",
        "| `w1` | 100 (60) | 100 | 100 |",
        "| `w2` | 100 (60) | 100 |  |",
    ]


def test_the_circumstances_say_what_has_no_figure() -> None:
    assert table.circumstances(FOUND).splitlines() == [
        "- Machine: A processor (x86_64), 2 cores, 8 GiB, Linux",
        "- 2 threads for every system; on as many, the machine reaches 100 GFLOP/s in f32 and reads 20 GB/s",
        "- Versions: Python 3.11; topos 0.1.0, torch 2.13, jax 0.10",
        "- 2026-01-02, by `python -m benchmarks`",
        "- jax has no figure on `w2`: over 150 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.34, "12.3 s"),
        (1.0, "1 s"),
        (0.9996, "1 s"),
        (0.9994, "999 ms"),
        (0.1234, "123 ms"),
        (12e-6, "12 us"),
        (42e-9, "42 ns"),
        (1234.0, "1234 s"),
    ],
)
def test_a_duration_has_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert table.duration(seconds) == text


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "performance.json"
    results.write(FOUND, file)
    assert results.read(file) == FOUND
    results.write({**FOUND, "failures": []}, file)
    assert results.read(file)["failures"] == []


def test_the_picture_is_drawn_and_is_the_same_for_the_same_results(tmp_path: Path) -> None:
    picture = pytest.importorskip("benchmarks.picture")
    pytest.importorskip("matplotlib")
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        picture.draw(FOUND, WORKLOADS, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"<svg" in files[0].read_bytes()


def test_the_machine_is_as_good_as_it_ever_was() -> None:
    one, other = {"threads": 2, "bytes_per_s": 1.0, "operations_per_s": 5.0}, {"threads": 2, "bytes_per_s": 3.0}
    assert results.best(one, {**other, "operations_per_s": 4.0}) == {
        "threads": 2,
        "bytes_per_s": 3.0,
        "operations_per_s": 5.0,
    }


def answering(name: str, *numbers: float) -> Any:
    return SimpleNamespace(system=name, ready={"results": list(numbers)})


def test_results_that_differ_are_refused_before_anything_is_timed() -> None:
    bound = WORKLOADS["w2"].bound
    measure.compared(WORKLOADS["w2"], [answering("topos", 2.0, 1.0), answering("jax", 2.0 + bound, 1.0)])
    with pytest.raises(measure.DifferentResults) as raised:
        measure.compared(WORKLOADS["w2"], [answering("topos", 2.0, 1.0), answering("jax", 2.0, 1.01)])
    assert str(raised.value) == (
        "w2: topos answers [2.0, 1.0], jax [2.0, 1.01]: 5.0e-03 of the largest apart, more than 0.0001"
    )


def test_a_result_that_is_no_number_is_refused() -> None:
    with pytest.raises(measure.DifferentResults):
        measure.compared(WORKLOADS["w2"], [answering("topos", 2.0), answering("jax", float("nan"))])


def test_each_round_is_begun_by_the_next_system() -> None:
    workers: Any = ["a", "b", "c"]
    assert [measure.rotated(workers, turn) for turn in range(3)] == [list("abc"), list("bca"), list("cab")]
    assert measure.rotated([], 2) == []


def test_names_are_listed_and_unknown_ones_refused() -> None:
    known = ["w1", "w9-512-f32", "w9-512-f64"]
    assert command.listed("w9,w1", known) == ["w9-512-f32", "w9-512-f64", "w1"]
    with pytest.raises(SystemExit, match="benchmarks: nothing is called 'w'; there are w1, w9-512-f32, w9-512-f64"):
        command.listed("w", known)


def test_compilations_show_both_processes_and_the_memory_of_a_step() -> None:
    cold = {"elapsed_s": 0.4, "processor_s": 0.3, "llvm_s": 0.03, "compiled": 31, "loaded": 0, "slowest": [["k", 0.1]]}
    again = {**cold, "elapsed_s": 0.05, "processor_s": 0.04, "compiled": 0, "loaded": 31}
    mib = 1 << 20
    found = {
        "date": "2026-01-02",
        "command": "python -m benchmarks.compile",
        "compilations": [{"plan": "`w2`", "cold": cold, "again": again}],
        "memories": [{"plan": "`w2`", "grown": 3 * mib, "live": 4 * mib, "tables": mib}],
    }
    assert table.compilation(found).splitlines() == [
        "| compilation (processor time) | cold | texts compiled | second process | texts loaded | slowest |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `w2` | 400 ms (300 ms) | 31 | 50 ms (40 ms) | 31, and 0 compiled | `k` 100 ms |",
        "",
        "Loading LLVM itself took 30 ms and is in none of these.",
        "",
        "| memory of a step, MiB | grown | live volume | tables | (grown + tables) / (live + tables) |",
        "| --- | --- | --- | --- | --- |",
        "| `w2` | 3.0 | 4.0 | 1.0 | 0.80 |",
        "",
        "- 2026-01-02, by `python -m benchmarks.compile`",
    ]


def test_distances_show_each_engine_over_each_element() -> None:
    found = {
        "date": "2026-01-02",
        "command": "python -m benchmarks.distances",
        "versions": {"jaxlib": "1.2.3", "iree-base-compiler": "4.5.6"},
        "distances": [
            {"title": "`exp`", "f32": {"interpreter": 0.0, "XLA": 5.0, "IREE": None}, "bf16": {"interpreter": 8.75}},
            {"title": "softmax", "f32": {"interpreter": 2e6, "XLA": 489.4, "IREE": 0.0469}, "bf16": {}},
        ],
    }
    assert table.distances(found).splitlines() == [
        "| largest distance, in ulp | `f32`, interpreter | `f32`, XLA | `f32`, IREE "
        "| `bf16`, interpreter | `bf16`, XLA | `bf16`, IREE |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| `exp` | 0 | 5 | NaN | 8.75 |  |  |",
        "| softmax | over 1e6 | 489 | 0.0469 |  |  |  |",
        "",
        "- 2026-01-02, by `python -m benchmarks.distances`, jaxlib 1.2.3, iree-base-compiler 4.5.6",
    ]


def test_emission_shows_the_text_s_time_and_who_serves_how_fast() -> None:
    medians, ready = {"topos": 0.001, "XLA": 0.002, "IREE": 0.0005}, {"topos": 0.1, "XLA": 0.2, "IREE": 1.5}
    composed = {"medians": {**medians, "XLA, composed": 0.003}, "ready": {**ready, "XLA, composed": 0.3}}
    found = {
        "date": "2026-01-02",
        "command": "python -m benchmarks.serving",
        "versions": {"jaxlib": "1.2.3", "iree-base-compiler": "4.5.6"},
        "emissions": [{"layers": 10, "nodes": 5136, "lines": 5374, "raised": 0.25, "composed": 0.1}],
        "servings": [
            {"workload": "w2", "threads": 1, "medians": medians, "ready": ready},
            {"workload": "w3", "threads": 2, **composed},
        ],
    }
    assert table.emission(found, WORKLOADS).splitlines() == [
        "| nodes | lines of text | emitted in (processor time) | without raises |",
        "| --- | --- | --- | --- |",
        "| 5,136 | 5,374 | 250 ms | 100 ms |",
        "",
        "| forward pass, median of a call | threads | native plan | XLA | XLA, composed | IREE |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `w2` makemore MLP | 1 | 1 ms (ready in 100 ms) | 2 ms, 2.00 times (ready in 200 ms) |  "
        "| 500 us, 0.50 times (ready in 1.5 s) |",
        "| `w3` MNIST CNN | 2 | 1 ms (ready in 100 ms) | 2 ms, 2.00 times (ready in 200 ms) "
        "| 3 ms, 3.00 times (ready in 300 ms) | 500 us, 0.50 times (ready in 1.5 s) |",
        "",
        "- 2026-01-02, by `python -m benchmarks.serving`, jaxlib 1.2.3, iree-base-compiler 4.5.6",
    ]
