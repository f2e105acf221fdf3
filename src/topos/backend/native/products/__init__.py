"""Matrix products as kernels: `product` writes one, `explain` says which kind it is and why."""

from topos.backend.native.products.epilogue import Definition, Epilogue, Finish
from topos.backend.native.products.product import explain, product, reaches_terms, stage
from topos.backend.native.products.task import Batch, ProductTask

__all__ = ["Batch", "Definition", "Epilogue", "Finish", "ProductTask", "explain", "product", "reaches_terms", "stage"]
