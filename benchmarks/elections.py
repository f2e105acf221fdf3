"""What a BLAS gains over the exact products on this machine, shape by shape: what an election goes by.

    python benchmarks/elections.py

Prints a Markdown table. Both sides run one instruction through the seam, in turns, and their least times are compared;
a plan fuses the exact product with what stands around it, which this leaves out. Read `cat /proc/loadavg` first.
"""

from __future__ import annotations

from topos import Backend, Element, Formula, Outline, Shape, Task, f32, f64
from topos.backend.election import GAIN, gain
from topos.op import MATMUL

SHAPES = [(32, 64, 32), (128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (1, 768, 768), (4, 768, 2304)]


def product(rows: int, terms: int, columns: int, element: Element) -> Task:
    operands = (Outline(Shape([rows, terms]), element), Outline(Shape([terms, columns]), element))
    return Task(Formula.GEMM, MATMUL, element, Shape([rows, columns]), operands)


def main() -> None:
    blas = Backend.BLAS.required()
    print(f"{blas.status()}; {Backend.SIMD.status()}\n")
    print("| rows, terms, columns | `f32` | `f64` |\n| --- | --- | --- |")
    for rows, terms, columns in SHAPES:
        tasks = [product(rows, terms, columns, element) for element in (f32, f64)]
        ratios = [gain(blas, blas.offer(task), task, Backend.ALL) for task in tasks]
        told = [f"{ratio:.2f}{' elected' if ratio >= GAIN else ''}" for ratio in ratios]
        print(f"| {rows}, {terms}, {columns} | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
