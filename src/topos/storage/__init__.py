"""Files: networks with their tables, and tensors by name, each in one safetensors file without pickle or code.

In reading order: `dtypes` and `header` (what the format allows, checked before anything is read), `atomic` and
`writing` (a file appears whole or not at all), `tensors` (tensors by name), then what a network's header says: `text`,
`elements`, `opcodes`, `payloads`, `places`, `nodes`, `tables`, `entries`, `names`; and `network`, which is the whole.
"""

from topos.storage.network import Loaded, load, save
from topos.storage.tensors import TensorFile, load_tensors, save_tensors

__all__ = ["Loaded", "TensorFile", "load", "load_tensors", "save", "save_tensors"]
