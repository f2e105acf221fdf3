"""Orthogonal weights, by operations whose bits are the same on every machine."""

from __future__ import annotations

import math

import numpy as np

from topos import reference
from topos.element import f64
from topos.errors import ShapeError
from topos.neural.init.seeded import Array, Seeded
from topos.neural.limits import expect_number
from topos.neural.stream import Stream, expect_seed
from topos.shape import Shape


def orthogonal(seed: int, gain: float = 1.0) -> Seeded:
    """Orthonormal rows or columns, whichever are fewer, times `gain`; every such matrix is as likely as any other.

    The weight is a matrix of its first axis by all others. As many standard normals are drawn, row by row of the
    matrix that has as few rows as either has, and its rows are made orthonormal by Gram and Schmidt's process; a
    matrix with more rows than columns is the transpose of one. (Saxe, McClelland and Ganguli, "Exact solutions to the
    nonlinear dynamics of learning in deep linear neural networks", 2014; Mezzadri, "How to generate random matrices
    from the classical compact groups", 2007: the distribution is even because the process keeps the diagonal of its
    triangle positive.) Raises `ShapeError` for a rank below 2.
    """
    seed, gain = expect_seed(seed), expect_number("init.orthogonal", "gain", gain)

    def draw(stream: Stream, shape: Shape) -> Array:
        if shape.rank < 2:
            raise ShapeError(f"init.orthogonal: wants a weight of rank 2 or more, got {shape}")
        rows, columns = shape[0], math.prod(shape[1:])
        few, many = sorted((rows, columns))
        with np.errstate(all="ignore"):
            matrix = orthonormal(stream.normals(few * many).reshape(few, many))
        return (matrix if rows <= columns else matrix.T) * gain

    return Seeded("orthogonal", seed, draw)


def orthonormal(rows: Array) -> Array:
    """The rows of an f64 matrix made orthonormal in their order, by the modified Gram-Schmidt process.

    Row by row: it is divided by the square root of its sum of squares, and every later row loses its product with it.
    Products of rows are sums as `sum_along` defines them. The rows are orthogonal to within the rounding of f64 times
    the condition of the matrix (Bjorck, "Solving linear least squares problems by Gram-Schmidt orthogonalization",
    1967), which for normal numbers is about the number of rows.
    """
    result, terms = np.array(rows), np.empty_like(rows)
    for at, row in enumerate(result):
        row /= np.sqrt(reference.sum(f64, row * row))
        later, spare = result[at + 1 :], terms[at + 1 :]
        np.multiply(later, row, out=spare)
        np.multiply(reference.sum_along(f64, spare, 1)[:, None], row, out=spare)
        later -= spare
    return result
