"""Helpers for data: batches in a seeded order, IDX files, texts and their vocabularies. Thin; arrays are NumPy's."""

from topos.neural.data.batches import batches
from topos.neural.data.idx import read_idx
from topos.neural.data.vocabulary import Vocabulary, read_text

__all__ = ["Vocabulary", "batches", "read_idx", "read_text"]
