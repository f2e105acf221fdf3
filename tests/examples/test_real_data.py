"""The examples on real data, at a small size; images and text that are made up stand for what would be fetched."""

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from topos.testing import assert_same_bits

Example = Callable[[str], ModuleType]
PNG = b"\x89PNG\r\n\x1a\n"


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(PNG)


def test_the_loop_over_tables_learns(example: Example, tmp_path: Path) -> None:
    picture = tmp_path / "adam.png"
    trained = example("makemore/adam").main(steps=40, limit=300, picture=picture)
    assert trained.adam[-5:].mean() < trained.adam[:5].mean() - 0.4
    assert trained.descent[-5:].mean() < trained.descent[:5].mean()
    assert is_picture(picture)


def test_the_compiled_step_has_the_bits_of_the_loop_over_tables(example: Example, tmp_path: Path) -> None:
    sizes = {"steps": 40, "together": 20, "compared": 25, "measure_batch": 256, "limit": 300}
    trained = example("makemore/compiled").main(**sizes, picture=tmp_path / "compiled.png")
    assert trained.same
    assert [step for step, _ in trained.held_out] == [20, 40]
    assert trained.losses[-5:].mean() < trained.losses[:5].mean() - 0.4


def test_shards_in_any_number_of_threads_have_the_same_bits(example: Example, tmp_path: Path) -> None:
    trained = example("makemore/parallel").main(steps=6, shard=16, limit=200, picture=tmp_path / "parallel.png")
    assert trained.same
    assert len(trained.losses) == 6


def test_batch_norm_keeps_a_deep_net_in_range(example: Example, tmp_path: Path) -> None:
    sizes = {"steps": 40, "depth": 3, "width": 30, "limit": 400}
    without, normal = example("makemore/batch_norm").main(**sizes, picture=tmp_path / "norm.png")
    assert normal.saturated < 0.1 < without.saturated
    assert normal.losses[-5:].mean() < normal.losses[:5].mean()


def test_the_transformer_learns_names(example: Example, tmp_path: Path) -> None:
    sizes = {"steps": 40, "together": 20, "measured": 30, "width": 16, "heads": 2, "limit": 400}
    trained = example("makemore/transformer").main(**sizes, picture=tmp_path / "transformer.png")
    assert trained.losses[-5:].mean() < trained.losses[:5].mean() - 0.2
    assert len(trained.names) == 10


def test_a_name_is_a_row_with_no_target_after_its_end(example: Example) -> None:
    before, after = example("makemore/transformer").rows_of(["ab"])
    assert before[0, :4].tolist() == [0, 1, 2, 0]
    assert after[0, :4].tolist() == [1, 2, 0, -1]


def test_the_transformer_reads_no_place_after_the_one_it_scores(example: Example) -> None:
    makemore = example("makemore/transformer")

    def scores(ids: list[int]) -> np.ndarray:
        from topos import Tape

        tape = Tape()
        net = makemore.Transformer(tape, 16, 2, 2, seed=3)
        row = tape.selection([1, makemore.PLACES], 27, name="row")
        network, root = (symbol := net(row, 1).symbol(), tape.into_network())[1], symbol
        run = network.entry(root).lower().forward(network.parameters(), {"row": np.array([ids])})
        return run.of(root).numpy()

    first, second = scores([0, 1, 2] + [0] * 13), scores([0, 1, 2] + [5] * 13)
    assert_same_bits(first[:3], second[:3])
    assert (first[3:] != second[3:]).any()


def test_digits_are_read(example: Example, tmp_path: Path) -> None:
    picture = tmp_path / "digits.png"
    learned = example("digits/digits").main(epochs=2, limit=512, picture=picture)
    assert learned.losses[-4:].mean() < 0.7 * learned.losses[:4].mean()
    assert learned.accuracies[-1] > 0.5
    assert is_picture(picture)


@pytest.mark.slow
def test_digits_are_read_to_98_percent(example: Example, tmp_path: Path) -> None:
    learned = example("digits/digits").main(picture=tmp_path / "digits.png")
    assert learned.accuracies[-1] >= 0.98
    assert len(learned.misread) == round((1 - learned.accuracies[-1]) * 360)


def write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


def bars(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with a bright bar at a height that is their class."""
    classes = random.integers(10, size=count)
    images = random.integers(60, size=(count, 28, 28))
    images[np.arange(count)[:, None], 2 * classes[:, None] + [3, 4]] += 150
    return images.astype(np.uint8), classes.astype(np.uint8)


def test_images_from_idx_files_are_told_apart(example: Example, tmp_path: Path) -> None:
    random = np.random.Generator(np.random.PCG64(1))
    for part, count in (("train", 320), ("t10k", 30)):
        images, classes = bars(random, count)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", classes)
    picture = tmp_path / "bars.png"
    learned = example("fashion_mnist/images").main("bars", tmp_path, epochs=3, batch=16, together=8, picture=picture)
    assert learned.accuracies[-1] > 0.8
    assert learned.confused.sum() == 30
    assert is_picture(picture)


def test_pictures_of_a_sheet_are_told_apart(example: Example, tmp_path: Path) -> None:
    from matplotlib.image import imsave

    emoji = example("emoji/emoji")
    random = np.random.Generator(np.random.PCG64(2))
    side, entries = 12, []
    sheet = np.zeros((side * emoji.CELL, side * emoji.CELL, 4), np.uint8)
    for at in range(side * side):
        y, x, kind = at // side, at % side, at % len(emoji.KINDS)
        color = np.array([80 * (kind % 3), 80 * (kind // 3), 128])
        noise = random.integers(40, size=(emoji.CELL, emoji.CELL, 3))
        cell = sheet[y * emoji.CELL :, x * emoji.CELL :][: emoji.CELL, : emoji.CELL]
        cell[..., :3], cell[..., 3] = color + noise, 255
        entries.append({"has_img_google": True, "category": emoji.KINDS[kind], "sheet_x": x, "sheet_y": y})
    imsave(tmp_path / "32.png", sheet)
    (tmp_path / "emoji.json").write_text(json.dumps(entries), encoding="utf-8")
    learned = emoji.main(tmp_path, epochs=4, batch=16, picture=tmp_path / "emoji.png")
    assert learned.losses[-3:].mean() < 0.8 * learned.losses[:3].mean()
    assert len(learned.taken) == 24
    assert is_picture(tmp_path / "emoji.png")


def test_a_text_is_learned_and_written_on(example: Example, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\nto be or not to be " * 400, encoding="utf-8")
    shakespeare = example("shakespeare/shakespeare")
    size = shakespeare.Size(tokens=16, width=16, blocks=1)
    learned = shakespeare.main(text, 30, 10, 4, size, measured=4, drawn=2, picture=tmp_path / "text.png")
    assert learned.losses[-3:].mean() < learned.losses[0] - 0.3
    assert [len(stretch) for stretch in learned.written] == [16, 16]


def test_letter_by_letter_is_the_whole_row(example: Example) -> None:
    """What decoding scores at each place are the bits that one pass over the row scores there."""
    from topos import KeyValueCache, Numerics, Tape, detach

    shakespeare = example("shakespeare/shakespeare")
    tape, tokens, letters = Tape(), 6, 11
    net = shakespeare.Writer(tape, letters, shakespeare.Size(tokens, 16, 4, 2), seed=4)
    whole = net(tape.selection([1, tokens], letters, name="row"), 1, tokens)
    caches = [KeyValueCache(tape, [1, 2, tokens, 4]) for _ in range(2)]
    ids, at = tape.selection([1], letters, name="ids"), tape.selection([1], tokens, name="at")
    scores, kept = net.decode(ids, 1, at, caches)
    whole, scores, kept = detach(whole, scores, kept)
    network = tape.into_network()
    row = np.array([[3, 1, 4, 1, 5, 9]])
    exact = Numerics.EXACT
    expected = network.entry(whole).numerics(exact).lower().forward(network.parameters(), {"row": row}).of(whole)
    state, plan = network.state(), network.entry(scores).carry(kept).numerics(exact).lower()
    found = [
        plan.advance(state, {"ids": row[:, place], "at": [place]}).of(scores).numpy().reshape(1, letters)
        for place in range(tokens)
    ]
    assert_same_bits(np.stack(found, 1), expected)


def test_what_cannot_be_fetched_says_what_would_have_fetched_it(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = example("data/fetch")
    monkeypatch.setenv("TOPOS_DATA", str(tmp_path))
    monkeypatch.setitem(fetch.SETS, "mnist", (["no-such-program", "fetch"], fetch.SETS["mnist"][1]))
    with pytest.raises(fetch.Absent, match="^no-such-program is not there, and `no-such-program fetch` would have"):
        fetch.folder("mnist")
    assert list(tmp_path.iterdir()) == []
