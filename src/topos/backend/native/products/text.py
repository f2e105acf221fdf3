"""Lines of LLVM text with fresh names, loops by phi nodes, and the declarations they rely on."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Text:
    """The body of one function under construction.

    Values are names or literals. Every loop runs at least once: the test stands at its end.
    """

    def __init__(self, helpers: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.helpers = helpers
        self._rooms: list[str] = []
        self._fresh = 0
        self._block = "entry"

    def do(self, statement: str) -> None:
        """A statement without a value."""
        self.lines.append("  " + statement)

    def let(self, expression: str) -> str:
        """A new name for the value of an expression."""
        self._fresh += 1
        name = f"%v{self._fresh}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def need(self, definition: str) -> None:
        """A declaration or a helper's definition, kept once by its first line."""
        self.helpers.setdefault(definition.split("\n", 1)[0], definition)

    def room(self, kind: str) -> str:
        """Memory of the function's own for a type, from a cache line on."""
        self._fresh += 1
        name = f"%room{self._fresh}"
        self._rooms.append(f"  {name} = alloca {kind}, align 64")
        return name

    # integers; literals are computed here
    def add(self, left: str | int, right: str | int) -> str:
        """`left + right`, i64."""
        if isinstance(left, int) and isinstance(right, int):
            return str(left + right)
        if right in (0, "0"):
            return str(left)
        return str(right) if left in (0, "0") else self.let(f"add i64 {left}, {right}")

    def sub(self, left: str, right: str) -> str:
        """`left - right`, i64."""
        if left == right or right == "0":
            return "0" if left == right else left
        return self.let(f"sub i64 {left}, {right}")

    def mul(self, left: str, factor: int) -> str:
        """`left * factor`, i64."""
        if _is_known(left):
            return str(int(left) * factor)
        return left if factor == 1 else self.let(f"mul i64 {left}, {factor}") if factor else "0"

    def less(self, left: str | int, right: str | int) -> str:
        """`left < right`, signed."""
        if _is_known(left) and _is_known(right):
            return str(int(left) < int(right)).lower()
        return self.let(f"icmp slt i64 {left}, {right}")

    def least(self, left: str | int, right: str | int) -> str:
        """The smaller one, signed."""
        if _is_known(left) and _is_known(right):
            return str(min(int(left), int(right)))
        return self.let(f"select i1 {self.less(left, right)}, i64 {left}, i64 {right}")

    def share(self, part: str, parts: int, count: int) -> str:
        """`part * count // parts`: where a part of `count` things begins."""
        return part if parts == count else self.let(f"udiv i64 {self.mul(part, count)}, {parts}")

    def at(self, pointer: str, offset_bytes: str | int) -> str:
        """A pointer moved by bytes."""
        if offset_bytes in (0, "0"):
            return pointer
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {offset_bytes}")

    # control
    def loop(
        self,
        first: str | int,
        end: str | int,
        step: int,
        body: Callable[[str, Sequence[str]], Sequence[str] | None],
        carried: Sequence[tuple[str, str]] = (),
    ) -> list[str]:
        """`body(index, values) -> next values`, from `first` below `end`, at least once; `carried`: (type, start).

        A round that is known to be the only one is no loop.
        """
        if _is_known(first) and _is_known(end) and int(first) + step >= int(end):
            return list(body(str(first), [start for _, start in carried]) or ())
        before, head = self._block, self._label()
        self.do(f"br label %{head}")
        self._open(head)
        slot = len(self.lines)
        self._fresh += 1
        index = f"%i{self._fresh}"
        names = [f"%p{self._fresh}_{place}" for place in range(len(carried))]
        after = list(body(index, names) or ())
        following = self.add(index, step)
        more = self.less(following, end)
        done = self._label()
        phis = [f"  {index} = phi i64 [ {first}, %{before} ], [ {following}, %{self._block} ]"]
        for name, (kind, start), value in zip(names, carried, after, strict=True):
            phis.append(f"  {name} = phi {kind} [ {start}, %{before} ], [ {value}, %{self._block} ]")
        self.lines[slot:slot] = phis
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        self._open(done)
        return after

    def when(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Callable[[], Sequence[str] | None] = tuple,
        kinds: Sequence[str] = (),
    ) -> list[str]:
        """Either of two pieces of code; their values, of the types `kinds`, meet in the results."""
        if condition in ("true", "false"):
            return list((then if condition == "true" else otherwise)() or ())
        yes, no, done = self._label(), self._label(), self._label()
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")
        ends = []
        for label, piece in ((yes, then), (no, otherwise)):
            self._open(label)
            values = list(piece() or ())
            ends.append((values, self._block))
            self.do(f"br label %{done}")
        self._open(done)
        (chosen, here), (other, there) = ends
        meeting = zip(kinds, chosen, other, strict=True)
        return [self.let(f"phi {kind} [ {one}, %{here} ], [ {two}, %{there} ]") for kind, one, two in meeting]

    def function(self, head: str) -> str:
        """The finished definition: `define {head}` around the lines, which return nothing."""
        return "\n".join([f"define {head} {{", "entry:", *self._rooms, *self.lines, "  ret void", "}", ""])

    def _label(self) -> str:
        self._fresh += 1
        return f"b{self._fresh}"

    def _open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._block = label


def _is_known(value: str | int) -> bool:
    """Whether an integer is a literal."""
    return str(value).lstrip("-").isdigit()
