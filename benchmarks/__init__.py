"""Measurements, none of which is a gate.

Beside other systems: `python -m benchmarks`. `workloads` (which `models` and `arrays` spell) are run by `systems`, each
in a `worker`; `measure` takes turns among them; `results` are kept, `table` and `picture` show them.

Of topos alone: `profile` (a plan, group by group), `compile`, `spec` (recording, the interpreter, imports), `calls` and
`steps` (what a call and a training loop cost beside their native code), `reference` (the NumPy kernels), `eager`
(tensors outside plans), `elections` (a BLAS beside the exact products), `native_products` and `native_rows` (kernels by
themselves), `packing`, `patterns`, `folds` and `pools` (what these save), `peak` (what the machine can do), and
`test_import`, which pytest-benchmark records.

Of emitted modules: `serving` (how fast other engines run them) and `distances` (how far their results are, over the
`distance_rows`).
"""
