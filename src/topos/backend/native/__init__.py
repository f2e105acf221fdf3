"""Native plans: kernels written as LLVM text, compiled in the process, with the interpreter's bits."""
