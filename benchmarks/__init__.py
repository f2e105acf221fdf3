"""Measurements, none of which is a gate.

Beside other systems: `python -m benchmarks`. `workloads` (which `models` and `arrays` spell) are run by `systems`, each
in a `worker`; `measure` takes turns among them; `results` are kept, `table` and `picture` show them.

Of topos alone: `profile` (a plan, group by group), `compile`, `spec` (recording, the interpreter, imports), `reference`
(the NumPy kernels), `eager` (tensors outside plans), `elections` (a BLAS beside the exact products), `native_products`
and `native_rows` (kernels by themselves), `peak` (what the machine can do), and `test_import`, which pytest-benchmark
records.
"""
