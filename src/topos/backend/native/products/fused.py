"""The fused multiply-add in LLVM text: the instruction where the target has it, else its bits by other means.

`llvm.fma` without the hardware becomes a call of libm, whose bits are not ours. f32 goes through f64: the product is
exact there, the sum is rounded to odd and then once more (Boldo and Melquiond 2008). f64 is computed in integers.
"""

from __future__ import annotations

from topos.backend.native.products.text import Text


def fused(text: Text, scalar: str, lanes: int, a: str, b: str, c: str, has_fma: bool) -> str:
    """`a * b + c` rounded once: `lanes` numbers (0: one number that is no vector) of `float` or `double`."""
    kind = f"<{lanes} x {scalar}>" if lanes else scalar
    suffix = (f"v{lanes}" if lanes else "") + {"float": "f32", "double": "f64"}[scalar]
    arguments = f"({kind} {a}, {kind} {b}, {kind} {c})"
    if has_fma:
        text.need(f"declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})")
        return text.let(f"call {kind} @llvm.fma.{suffix}{arguments}")
    if scalar == "float":
        text.need(_through_double(f"topos_fma_{suffix}", kind, lanes))
        return text.let(f"call {kind} @topos_fma_{suffix}{arguments}")
    text.need("declare i256 @llvm.ctlz.i256(i256, i1)")
    text.need(_IN_INTEGERS)
    if not lanes:
        return text.let(f"call double @topos_fma_f64{arguments}")
    result = "poison"
    for lane in range(lanes):
        one = [text.let(f"extractelement {kind} {vector}, i32 {lane}") for vector in (a, b, c)]
        number = text.let(f"call double @topos_fma_f64(double {one[0]}, double {one[1]}, double {one[2]})")
        result = text.let(f"insertelement {kind} {result}, double {number}, i32 {lane}")
    return result


def _through_double(name: str, kind: str, lanes: int) -> str:
    """The f32 operation over f64: the nearest sum, its error by Knuth's two-sum, the odd neighbour, one rounding."""

    def wide(scalar: str) -> str:
        return f"<{lanes} x {scalar}>" if lanes else scalar

    real, word, flag = wide("double"), wide("i64"), wide("i1")
    zero = "zeroinitializer" if lanes else "0.0"

    def every(number: int) -> str:
        return f"splat (i64 {number})" if lanes else str(number)

    return f"""define internal {kind} @{name}({kind} %a, {kind} %b, {kind} %c) noinline nounwind {{
  %x = fpext {kind} %a to {real}
  %y = fpext {kind} %b to {real}
  %z = fpext {kind} %c to {real}
  %p = fmul {real} %x, %y
  %s = fadd {real} %p, %z
  %shadow = fsub {real} %s, %p
  %back = fsub {real} %s, %shadow
  %p.lost = fsub {real} %p, %back
  %z.lost = fsub {real} %z, %shadow
  %e = fadd {real} %p.lost, %z.lost
  %inexact = fcmp one {real} %e, {zero}
  %bits = bitcast {real} %s to {word}
  %last = trunc {word} %bits to {flag}
  %even = xor {flag} %last, {"splat (i1 true)" if lanes else "true"}
  %adjust = and {flag} %inexact, %even
  %up = fcmp ogt {real} %e, {zero}
  %positive = fcmp ogt {real} %s, {zero}
  %differ = xor {flag} %up, %positive
  %step = select {flag} %differ, {word} {every(-1)}, {word} {every(1)}
  %moved = add {word} %bits, %step
  %odd.bits = select {flag} %adjust, {word} %moved, {word} %bits
  %odd = bitcast {word} %odd.bits to {real}
  %result = fptrunc {real} %odd to {kind}
  ret {kind} %result
}}
"""


# Significands are 53-bit integers m with value m * 2^(e - 1075), e the biased exponent (1 for a subnormal). The exact
# product is m_a m_b 2^(e_a + e_b - 2150). Both terms are written as integers times 2^(base), the larger exponent lifted
# by at most 130 bits: beyond that the smaller term is a speck below every rounding position, kept as a sticky 1.
_IN_INTEGERS = """define internal double @topos_fma_f64(double %a, double %b, double %c) noinline nounwind {
entry:
  %abits = bitcast double %a to i64
  %bbits = bitcast double %b to i64
  %cbits = bitcast double %c to i64
  %ash = lshr i64 %abits, 52
  %bsh = lshr i64 %bbits, 52
  %csh = lshr i64 %cbits, 52
  %ae = and i64 %ash, 2047
  %be = and i64 %bsh, 2047
  %ce = and i64 %csh, 2047
  %a.special = icmp eq i64 %ae, 2047
  %b.special = icmp eq i64 %be, 2047
  %c.special = icmp eq i64 %ce, 2047
  %factor.special = or i1 %a.special, %b.special
  %product = fmul double %a, %b
  %plain = fadd double %product, %c
  br i1 %factor.special, label %trivial, label %finite.factors
finite.factors:
  br i1 %c.special, label %addend, label %finite
finite:
  %a.zero = fcmp oeq double %a, 0.0
  %b.zero = fcmp oeq double %b, 0.0
  %zero = or i1 %a.zero, %b.zero
  br i1 %zero, label %trivial, label %exact
trivial:
  ret double %plain
addend:
  ret double %c
exact:
  %am0 = and i64 %abits, 4503599627370495
  %bm0 = and i64 %bbits, 4503599627370495
  %cm0 = and i64 %cbits, 4503599627370495
  %a.sub = icmp eq i64 %ae, 0
  %b.sub = icmp eq i64 %be, 0
  %c.sub = icmp eq i64 %ce, 0
  %am1 = or i64 %am0, 4503599627370496
  %bm1 = or i64 %bm0, 4503599627370496
  %cm1 = or i64 %cm0, 4503599627370496
  %am = select i1 %a.sub, i64 %am0, i64 %am1
  %bm = select i1 %b.sub, i64 %bm0, i64 %bm1
  %cm = select i1 %c.sub, i64 %cm0, i64 %cm1
  %ax = select i1 %a.sub, i64 1, i64 %ae
  %bx = select i1 %b.sub, i64 1, i64 %be
  %cx = select i1 %c.sub, i64 1, i64 %ce
  %am.w = zext i64 %am to i128
  %bm.w = zext i64 %bm to i128
  %cm.w = zext i64 %cm to i256
  %pm.narrow = mul i128 %am.w, %bm.w
  %pm = zext i128 %pm.narrow to i256
  %px0 = add i64 %ax, %bx
  %px = sub i64 %px0, 1075
  %gap = sub i64 %px, %cx
  %product.above = icmp sgt i64 %gap, 0
  %minus.gap = sub i64 0, %gap
  %distance = select i1 %product.above, i64 %gap, i64 %minus.gap
  %far = icmp sgt i64 %distance, 130
  %lift = select i1 %far, i64 130, i64 %distance
  %lift.w = zext i64 %lift to i256
  %high = select i1 %product.above, i256 %pm, i256 %cm.w
  %low = select i1 %product.above, i256 %cm.w, i256 %pm
  %high.x = select i1 %product.above, i64 %px, i64 %cx
  %high.zero = icmp eq i256 %high, 0
  %low.some = icmp ne i256 %low, 0
  %low.speck = zext i1 %low.some to i256
  %lifted = shl i256 %high, %lift.w
  %low.kept = select i1 %far, i256 %low.speck, i256 %low
  %alone = and i1 %far, %high.zero
  %low.used = select i1 %alone, i256 %low, i256 %low.kept
  %base0 = sub i64 %high.x, %lift
  %low.x = select i1 %product.above, i64 %cx, i64 %px
  %base = select i1 %alone, i64 %low.x, i64 %base0
  %psign0 = xor i64 %abits, %bbits
  %psign = icmp slt i64 %psign0, 0
  %csign = icmp slt i64 %cbits, 0
  %high.sign = select i1 %product.above, i1 %psign, i1 %csign
  %low.sign = select i1 %product.above, i1 %csign, i1 %psign
  %high.minus = sub i256 0, %lifted
  %low.minus = sub i256 0, %low.used
  %high.term = select i1 %high.sign, i256 %high.minus, i256 %lifted
  %low.term = select i1 %low.sign, i256 %low.minus, i256 %low.used
  %sum = add i256 %high.term, %low.term
  %none = icmp eq i256 %sum, 0
  br i1 %none, label %cancelled, label %rounding
cancelled:
  ret double 0.0
rounding:
  %negative = icmp slt i256 %sum, 0
  %minus = sub i256 0, %sum
  %size = select i1 %negative, i256 %minus, i256 %sum
  %zeros.w = call i256 @llvm.ctlz.i256(i256 %size, i1 true)
  %zeros = trunc i256 %zeros.w to i64
  %width = sub i64 256, %zeros
  %drop.normal = sub i64 %width, 53
  %drop.least = sub i64 1, %base
  %normal = icmp sgt i64 %drop.normal, %drop.least
  %drop = select i1 %normal, i64 %drop.normal, i64 %drop.least
  %drops = icmp sgt i64 %drop, 0
  %down0 = select i1 %drops, i64 %drop, i64 0
  %all = icmp sgt i64 %down0, 250
  %down = select i1 %all, i64 250, i64 %down0
  %raise = sub i64 0, %drop
  %up = select i1 %drops, i64 0, i64 %raise
  %down.w = zext i64 %down to i256
  %up.w = zext i64 %up to i256
  %shifted = lshr i256 %size, %down.w
  %again = shl i256 %shifted, %down.w
  %rest = sub i256 %size, %again
  %unit = shl i256 1, %down.w
  %half = lshr i256 %unit, 1
  %over = icmp ugt i256 %rest, %half
  %tie = icmp eq i256 %rest, %half
  %last = trunc i256 %shifted to i1
  %tie.up0 = and i1 %tie, %last
  %tie.up = and i1 %tie.up0, %drops
  %over.up = and i1 %over, %drops
  %away = or i1 %over.up, %tie.up
  %away.w = zext i1 %away to i256
  %kept0 = shl i256 %shifted, %up.w
  %kept = add i256 %kept0, %away.w
  %significand = trunc i256 %kept to i64
  %exponent = add i64 %base, %drop
  %is.normal = icmp uge i64 %significand, 4503599627370496
  %stored0 = sub i64 %exponent, 1
  %stored = select i1 %is.normal, i64 %stored0, i64 0
  %field = shl i64 %stored, 52
  %pattern0 = add i64 %field, %significand
  %overflow0 = icmp sgt i64 %exponent, 2046
  %overflow1 = icmp ugt i64 %pattern0, 9218868437227405312
  %overflow = or i1 %overflow0, %overflow1
  %pattern1 = select i1 %overflow, i64 9218868437227405312, i64 %pattern0
  %sign = select i1 %negative, i64 -9223372036854775808, i64 0
  %pattern = or i64 %pattern1, %sign
  %result = bitcast i64 %pattern to double
  ret double %result
}
"""
