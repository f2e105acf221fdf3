"""Native plans: kernels written as LLVM text, compiled in the process, with the interpreter's bits.

The stages, in the order in which they are read; each is given what the one before it answers.

1.  `lowered`        From an entry or a schedule to an `Executable`, or the reason why there is none: by its
                     `fingerprint` from the cache, as a `manifest`, or by `making` it in the stages 2 to 6.
2.  `views`          Where a value is read: movement as an affine map to a buffer. Beside it, what is never written out:
                     `padding`, `selections`, `widening`, and additions of zero (`signs`).
3.  `groups`         Which rows become one kernel, by `placement` of `drafts`, `absorption` and `prologues`; what they
                     weigh (`costs`), and who reads them (`readers`). In which order of their places rows are computed:
                     `rearranging`, by the `arrangement` of what they read, and `folding` for folds and the products
                     that they alone read. What is worked out again where it is read: `recomputing`; windows, and what
                     they are made of: `worked_out` (`line_counts`). Windows that products read where they lie:
                     `gridding`. Which groups run together, block of rows by block: `cascades` (`cascade_crossing`,
                     `cascade_remade`, `cascade_folds`). Whose results lie where a copy of them would: `destinations`.
                     All of it in order: `grouping`. What is said of them: `telling`.
4.  `writers`        The kernel of each group, by kind, where `reading` says that there is one, loaded with the first:
                     `loops` (elementwise), `panels`, `phases`, `whole`, `reductions`, `passes` and `rows` (sums and
                     maxima), `contractions`, `operands` and the package `products`, `copies`, `indexing`, `windows`,
                     `line_kernels` (`line_work`: rows that are worked out where they are read), `cascade_kernel`
                     (`cascade_block`, `cascade_places`, `cascade_reach`; `cascade_stages`), for few matrices
                     `cascade_rounds` (`cascade_round_kernels`, `cascade_round_memory`), for bands of an image
                     `cascade_rolling` (`cascade_bands`, `cascade_band`, `rings`), and `replacing` (a few rows of a
                     carried buffer).
5.  What they write with: `nest` (axes, operands, memory, tiles; `reads`, `stream`), `lines` (the places of lanes) and
                     `near` (numbers of neighbouring places), `evaluator` (bodies in registers), `arithmetic` and
                     `bodies` (an element's operations), `vocabulary` and `lookup` (the words of the elementary
                     functions), `text` and `registers` (LLVM's syntax), `kernel` (a text with its name).
6.  `program`        The calls of one step in order; their memory: `carry` (what replaces what), `arena`, `moves`. Many
                     steps as one function: `repeating`.
7.  `compiler`       Text to machine code, on the thread of `llvm`, for a `target`, counted in `counts`: `emission`
                     makes the `objects`, which the `cache` on disk keeps.
8.  `executable`     A run: a `table` that native code walks, memory for `results`, `weights` that stay packed; timed by
                     `profile`. The function that walks: `entering`.
9.  `pool`           The threads that share tiles: `pool_text`, `pool_waits`, `processors`, `flags`.

`eager` and `eager_program` bring the work of tensors that compute at once to stage 1, over arrays of any strides
(`layouts`). `settings` reads the environment.
"""
