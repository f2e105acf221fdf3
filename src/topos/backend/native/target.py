"""The processor that kernels are written for: what decides their shape, and never their bits."""

from __future__ import annotations

from functools import cache

from topos.backend.native.llvm import ask, binding
from topos.backend.native.settings import environment
from topos.errors import SettingError
from topos.records import NamedTuple

# The levels of the x86-64 psABI, each with what it adds to the one before.
_LEVELS = {
    "x86-64": "cmov cx8 fxsr mmx sse sse2",
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}

SECOND_CACHE_BYTES = 1 << 20
"""What the second cache of a core holds at least: half of it where vectors are those of AVX."""

# What the probe computes: a vector wider than any register, whose instructions name the registers used.
_PROBE = """
define void @probe(ptr %a) {
  %x = load <16 x float>, ptr %a, align 64
  %y = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %x)
  store <16 x float> %y, ptr %a, align 64
  ret void
}
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
"""

# What tells a processor that LLVM knows: every x86 that runs 64-bit code has these registers in 32-bit code too.
_KNOWN_PROBE = """
define void @probe(ptr %a) {
  %x = load <4 x i32>, ptr %a
  %y = add <4 x i32> %x, %x
  store <4 x i32> %y, ptr %a
  ret void
}
"""


class Target(NamedTuple):
    """A processor as LLVM names it (`znver5`, `x86-64-v3`), its vector width, and which instructions it has."""

    cpu: str
    features: str
    vector_bytes: int
    has_fma: bool

    @property
    def registers(self) -> int:
        """How many vectors the registers hold: of AVX-512 and AArch64 twice as many as of what came before."""
        return 32 if self.vector_bytes == 64 or (self.vector_bytes == 16 and self.has_fma) else 16

    @property
    def second_cache_bytes(self) -> int:
        """What the second cache of a core holds, at least, of most processors with such vectors."""
        return SECOND_CACHE_BYTES // 2 if self.vector_bytes == 32 else SECOND_CACHE_BYTES

    def lanes(self, item_bytes: int) -> int:
        """How many numbers of a size fill one register."""
        return self.vector_bytes // item_bytes


def current() -> Target:
    """The target of this process: the one that TOPOS_CPU names, or else the host."""
    cpu = environment("TOPOS_CPU")
    return host() if cpu is None else named(cpu)


@cache
def host() -> Target:
    """This machine, with all that it can do."""
    return _probed(*_host_facts(), masked=False)


@cache
def named(cpu: str) -> Target:
    """A narrower processor on this machine: `x86-64`, `x86-64-v3`, `x86-64-v4` or any that LLVM knows.

    A level of x86-64 that the host does not reach is refused, and so is a name that LLVM does not know. Of any other
    processor, what the host lacks is left out, so that the code always runs here.
    """
    host_cpu, has = _host_facts()
    if cpu == host_cpu:
        return host()
    if cpu in _LEVELS:
        wanted = _level(cpu)
        missing = sorted(wanted - {feature for feature, present in has.items() if present})
        if missing:
            raise SettingError(f"target: this machine ({host_cpu}) has no {', '.join(missing)}, which {cpu} needs")
    elif has.get("64bit") and cpu != "generic" and not _is_known(cpu):
        raise SettingError(f"target: LLVM knows no 64-bit x86 processor called {cpu!r}")
    return _probed(cpu, has, masked=True)


def _is_known(cpu: str) -> bool:
    """Whether LLVM knows an x86 processor, asked of 32-bit code: in 64-bit code it ends the process."""
    triple = binding().get_process_triple().replace("x86_64", "i386", 1)
    return "xmm" in ask(lambda: _assembly(cpu, "", _KNOWN_PROBE, triple))


def _level(cpu: str) -> set[str]:
    names = list(_LEVELS)
    return {feature for name in names[: names.index(cpu) + 1] for feature in _LEVELS[name].split()}


@cache
def _host_facts() -> tuple[str, dict[str, bool]]:
    llvm = binding()
    return ask(lambda: (llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())))


def _probed(cpu: str, has: dict[str, bool], masked: bool) -> Target:
    """The target, its width and fused multiply-add read off the instructions that LLVM chooses for it."""
    spelled = sorted(
        f"{'+' if present else '-'}{name}"
        for name, present in has.items()
        if not (masked and present) or name == "64bit"
    )
    if has.get("avx512f"):
        # Some processors are tuned to leave the wide registers alone, even where the text asks for them.
        spelled.append("-prefer-256-bit")
    features = ",".join(spelled)
    assembly = ask(lambda: _assembly(cpu, features))
    has_fma = "fmadd" in assembly or "fmla" in assembly
    width = 64 if "zmm" in assembly else 32 if "ymm" in assembly else 16
    if width == 16 and not has_fma:
        width = _width_without_fma(cpu, features)
    return Target(cpu, features, width, has_fma)


def _width_without_fma(cpu: str, features: str) -> int:
    """Where a fused multiply-add is a call per number, the loads say nothing: ask for a product instead."""
    text = _PROBE.replace(
        "call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %x)", "%P%"
    )
    product = text.replace("%P%", "fmul <16 x float> %x, %x")
    return 32 if "ymm" in ask(lambda: _assembly(cpu, features, product)) else 16


def _assembly(cpu: str, features: str, text: str = _PROBE, triple: str | None = None) -> str:
    llvm = binding()
    triple = triple or llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=1)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = triple
    return str(machine.emit_assembly(module))
