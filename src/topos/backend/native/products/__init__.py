"""Matrix products as kernels: `product` writes one, `explain` says which kind it is and why."""

from topos.backend.native.products.epilogue import Definition, Epilogue, Finish
from topos.backend.native.products.product import Prepacked, explain, prepacked, product, reaches_terms, resumed, stage
from topos.backend.native.products.task import Batch, Computed, Grid, Line, ProductTask

__all__ = [
    "Batch",
    "Computed",
    "Definition",
    "Epilogue",
    "Finish",
    "Grid",
    "Line",
    "Prepacked",
    "ProductTask",
    "explain",
    "prepacked",
    "product",
    "reaches_terms",
    "resumed",
    "stage",
]
