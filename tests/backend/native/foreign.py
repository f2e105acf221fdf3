"""Kernels for another architecture: compiled to objects, linked with a small C program, run in an emulator."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from topos.backend.native.kernel import Kernel
from topos.backend.native.target import Target

Array = np.ndarray[Any, np.dtype[Any]]

TRIPLE = "aarch64-unknown-linux-gnu"
TARGET = Target("generic", "+neon", 16, True)
LINKER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

# Reads a job (a stream of 64-bit words and buffers), runs the kernels that it names, writes the buffers back.
_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void kernel(void **arguments, int64_t tile, int64_t worker);
%(declared)s
static kernel *const kernels[] = {%(listed)s};
static FILE *job;

static int64_t word(void) {
  int64_t value;
  if (fread(&value, 8, 1, job) != 1) exit(3);
  return value;
}

static char *lines(int64_t size) {
  char *memory = aligned_alloc(64, (size + 127) / 64 * 64);
  if (!memory) exit(4);
  memset(memory, 0xA5, (size + 127) / 64 * 64);
  return memory;
}

int main(int count, char **names) {
  if (count != 3 || !(job = fopen(names[1], "rb"))) return 2;
  int64_t buffers = word(), *sizes = calloc(buffers + 1, 8);
  char **memory = calloc(buffers + 1, sizeof *memory);
  for (int64_t i = 0; i < buffers; i++) {
    sizes[i] = word();
    memory[i] = lines(sizes[i]);
    if (sizes[i] && fread(memory[i], sizes[i], 1, job) != 1) return 3;
  }
  for (int64_t calls = word(); calls > 0; calls--) {
    int64_t operands = word();
    void **arguments = calloc(operands + 1, sizeof *arguments);
    for (int64_t i = 0; i < operands; i++) {
      int64_t buffer = word();
      arguments[i] = memory[buffer] + word();
    }
    char *scratch = lines(word());
    arguments[operands] = scratch;
    for (int64_t left = word(); left > 0; left--) {
      kernel *run = kernels[word()];
      for (int64_t tile = word() - 1, last = tile; tile >= 0; tile--) run(arguments, tile, last - tile);
    }
    free(arguments);
    free(scratch);
  }
  FILE *answer = fopen(names[2], "wb");
  if (!answer) return 2;
  for (int64_t i = 0; i < buffers; i++)
    if (sizes[i] && fwrite(memory[i], sizes[i], 1, answer) != 1) return 3;
  return fclose(answer);
}
"""


def missing() -> str | None:
    """Why nothing can be run here, or `None` where it can."""
    absent = [name for name in (LINKER, EMULATOR) if shutil.which(name) is None]
    if absent:
        return f"no {' and no '.join(absent)} (Debian: qemu-user, gcc-aarch64-linux-gnu)"
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        llvm.Target.from_triple(TRIPLE)
    except RuntimeError as error:
        return f"this LLVM makes no code for {TRIPLE}: {error}"
    return None


class Job(NamedTuple):
    """One call of kernels: for each operand its buffer and the offset in it, in bytes; then the scratch, and tiles."""

    kernels: Sequence[Kernel]
    operands: Sequence[tuple[int, int]]
    scratch_bytes: int


def run(folder: Path, jobs: Sequence[Job], buffers: Sequence[Array]) -> list[Array]:
    """The buffers after all jobs ran in order, each over the buffers of bytes that it names."""
    kernels = {kernel.name: kernel for job in jobs for kernel in job.kernels}
    program = _linked(folder, list(kernels.values()))
    places = {name: at for at, name in enumerate(kernels)}
    parts = [_words(len(buffers))]
    for buffer in buffers:
        parts += [_words(buffer.nbytes), buffer.tobytes()]
    parts.append(_words(len(jobs)))
    for job in jobs:
        parts.append(_words(len(job.operands), *(word for operand in job.operands for word in operand)))
        parts.append(_words(job.scratch_bytes, len(job.kernels)))
        parts += [_words(places[kernel.name], kernel.tiles) for kernel in job.kernels]
    (folder / "job").write_bytes(b"".join(parts))
    subprocess.run([EMULATOR, program, folder / "job", folder / "answer"], check=True, timeout=600)
    content = np.frombuffer((folder / "answer").read_bytes(), np.uint8)
    assert content.size == sum(buffer.nbytes for buffer in buffers)
    ends = np.cumsum([buffer.nbytes for buffer in buffers])
    return [content[end - buffer.nbytes : end] for buffer, end in zip(buffers, ends, strict=True)]


def _words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _linked(folder: Path, kernels: Sequence[Kernel]) -> Path:
    objects = []
    for at, kernel in enumerate(kernels):
        objects.append(folder / f"{at}.o")
        objects[-1].write_bytes(_object("\n".join([*kernel.helpers, kernel.text])))
    names = [kernel.name for kernel in kernels]
    text = _MAIN % {
        "declared": "".join(f"kernel {name};\n" for name in names),
        "listed": ", ".join(["0", *names][1:] or ["0"]),
    }
    (folder / "main.c").write_text(text)
    command = [LINKER, "-static", "-O1", "-o", folder / "main", folder / "main.c", *objects, "-lm"]
    subprocess.run(command, check=True, timeout=600)
    return folder / "main"


def _object(text: str) -> bytes:
    """The text through the passes that kernels go through, as an object of the other architecture."""
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=TARGET.cpu, features=TARGET.features, opt=1, reloc="static", codemodel="small"
    )
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))
