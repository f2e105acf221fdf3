"""The limits of lowering, lowered: so low that every stage takes small programs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from topos.backend import native
from topos.backend.native.products.elect import elect, elect_stage
from topos.backend.native.products.product import _alone

LIMITS: Mapping[str, Sequence[int]] = {
    "placement.SOON": (0, 3, 64),
    "placement.LARGE": (1, 16, 1 << 15),
    "placement.MOST_APART": (2, 24),
    "recomputing.LEAST": (1, 100, 1 << 5),
    "recomputing.MOST_AGAIN": (2, 8),
    "nest.WORK": (8, 64, 1000, 100_000),
    "gridding.LEAST_COLUMNS": (1, 8),
    "cascades.FEWEST_BLOCKS": (1, 8),
    "cascades.FEWEST_ROWS": (1, 2),
    "cascade_block.FEWEST_ROWS": (1, 3, 5, 16),
    "cascade_block.BLOCK_BYTES": (1 << 6, 1 << 10, 1 << 15),
    "cascade_kernel.FEWEST_MATRICES": (1, 2, 8),
    "cascade_rounds.ROUND_ROWS": (1, 9, 40, 64),
    "cascade_rounds.FEWEST_TILES": (1, 8),
    "cascade_bands.LARGE_BYTES": (0, 1 << 10, 1 << 21),
    "cascade_bands.SHARED_BYTES": (0, 1 << 10, 1 << 22),
    "cascade_bands.FEWEST_IMAGES": (1, 2, 8),
    "cascade_bands.BAND_ROWS": (1, 9, 96),
    "cascade_bands.BAND_BYTES": (0, 1 << 10, 1 << 16),
    "cascade_bands.MOST_BANDS_AGAIN": (1, 8),
    "prologues.LEAST_NUMBERS": (1, 64, 1 << 13),
    "prologues.LEAST_OF_FEW_USES": (1, 1 << 18),
    "prologues.LEAST_ACROSS": (2, 8),
    "prologues.FEW_USES": (1, 8),
    "drafts.SMALL": (4, 64, 1 << 13),
    "drafts.LONG": (1, 8),
    "drafts.MOST_ROWS": (3, 128),
    "stream.STREAMED_BYTES": (64, 1 << 23),
    "loops.CLOSE": (16, 1 << 12),
    "loops.FAR": (64, 1 << 16),
    "loops.LONG": (4, 64),
    "passes.FAR": (16, 1 << 15),
    "phases.FEW": (64, 8),
    "reductions.NEAR_BYTES": (0, 1 << 15),
    "panels.PANEL_BYTES": (64, 1 << 15),
    "panels.MOST_COLUMNS": (64, 1024),
    "near.UNROLLED": (1, 16),
    "near.MOST_NEAR": (1, 4),
    "near.SHORT": (1, 1 << 29),
    "line_counts.MOST_LINES": (1, 4),
    "line_counts.MOST_UNROLLED": (1, 1 << 7),
    "line_counts.MOST_WRITTEN_OUT": (1, 1 << 9),
    "line_work.HELD": (1, 16),
    "worked_out.MOST_TERMS": (1, 16),
    "worked_out.MOVED": (0, 100, 3),
    "results.SMALL_BYTES": (8, 1 << 10),
    "results.LARGE_BYTES": (16, 1 << 17),
    "products.prepacked._FEWEST_ROWS": (1, 4),
    "products.prepacked._LEAST_NUMBERS": (1, 1 << 16),
    "products.prepacked._WHOLE_BLOCKS": (1, 4),
    "products.strip.MOST_ROWS": (1, 4, 8),
    "products.elect._MANY_ROWS": (2, 96),
    "products.elect._CROSSING_BYTES": (1, 64 << 10),
    "products.elect._RUN_BYTES": (256, 1 << 10),
    "products.elect._FAR_BYTES": (1, 512 << 10),
    "products.elect._RESIDENT_BYTES": (1, 8 << 20),
    "products.elect._SUMS_OF_FEW_BYTES": (1 << 7, 6 << 10),
    "products.elect._MANY_PRODUCTS": (1, 4),
    "products.elect._MEMORY_BYTES": (1, 32),
    "products.elect._VAST_BYTES": (1, 4 << 20),
    "products.elect._VAST_COLUMNS": (1, 1024),
    "products.lines._PANEL_BYTES": (1, 32 << 10),
    "products.lines._FEWEST_PANELS": (1, 3),
    "products.micro._ROUND_BYTES": (1, 768),
    "products.streamed._STACK_BYTES": (1, 48 << 10),
    "products.elect._TILE_RUN_BYTES": (256, 3 << 10),
    "products.elect._FOURTH_BYTES": (128, 2 << 10),
    "products.elect._EIGHTH_BYTES": (128, 8 << 10),
    "products.strip.SUMS_BYTES": (1 << 9, 96 << 10),
    "products.elect._DOTS": (1, 256),
    "products.terms._FEWEST_BLOCKS": (1, 8),
    "products.terms._NARROW": (1, 128),
    "products.blockwise._LEAST_BYTES": (1, 512 << 10),
    "products.blockwise._MOST_TILES": (2, 3, 8),
    "products.blockwise._SHORT_BYTES": (1, 4 << 10),
    "products.blockwise._FEWEST_ABREAST": (2, 4),
    "products.tiles.WORTH_A_TILE": (1, 1000, 200_000),
    "products.tiles._WORTH_BYTES": (1, 128 << 10),
    "products.tiles._LARGE_TILE": (1, 8_000_000),
    "products.tiles._BARRIER": (1, 400_000),
    "products.tiles._WORKED_OUT": (1, 16),
    "target.SECOND_CACHE_BYTES": (1 << 9, 1 << 20),
}
"""Whole numbers that decide how a plan is made and change no bit, each with values to try; the last is its own."""


def modules() -> list[Any]:
    """Every module of native plans."""
    names = [name for _, name, _ in pkgutil.walk_packages(native.__path__, f"{native.__name__}.")]
    return [importlib.import_module(name) for name in names]


@contextmanager
def limits(random: np.random.Generator) -> Iterator[dict[str, int]]:
    """Each limit its own, or lowered wherever it is read."""
    chosen = {name: int(random.choice(values)) for name, values in LIMITS.items()}
    found = modules()
    with ExitStack() as stack:
        for name, value in chosen.items():
            home, attribute = f"{native.__name__}.{name}".rsplit(".", 1)
            own = getattr(importlib.import_module(home), attribute)
            assert own == LIMITS[name][-1], name
            for module in found:
                if module.__name__ == home or module.__dict__.get(attribute) is own:
                    stack.enter_context(patch.object(module, attribute, value))
        for remembered in REMEMBERED:
            remembered.cache_clear()
            stack.callback(remembered.cache_clear)
        yield chosen


REMEMBERED = (elect, elect_stage, _alone)
"""What was chosen and written under other limits."""
