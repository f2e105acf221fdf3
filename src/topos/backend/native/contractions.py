"""Products of a plan: operands read where they lie, and what follows a result worked out before it is stored."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.evaluator import Evaluator, needed
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.nest import Frame
from topos.backend.native.operands import WorkedOut, batch_indices
from topos.backend.native.products import Batch, Definition, Epilogue, Finish, Grid, ProductTask, prepacked, product
from topos.backend.native.program import Call, Pointer, Weight
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, Operand, vector
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.views import View
from topos.op import Leaf, Parameter
from topos.records import NamedTuple

Products = Callable[[ProductTask, Target, Epilogue | None], tuple[Kernel, ...]]
"""What writes the kernels of a product."""


class _Contraction(NamedTuple):
    """The work of a group that a product begins, its arguments, where the right operand lies, and what follows."""

    task: ProductTask
    pointers: list[Pointer]
    right: Pointer
    epilogue: Epilogue | None


def matmul(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A product, and the elementwise rows that follow it in its group."""
    made = _contraction(lowering, group, target)
    if made is None:
        return None
    return Call(product(made.task, target, made.epilogue), made.pointers, _weight(lowering, made, target))


def contracted(lowering: Lowering, group: Group, target: Target, write: Products) -> Call | None:
    """The same by kernels that somebody else writes."""
    made = _contraction(lowering, group, target)
    return None if made is None else Call(write(made.task, target, made.epilogue), made.pointers)


def _contraction(lowering: Lowering, group: Group, target: Target) -> _Contraction | None:
    """`None` where an operand is a selection, which lies nowhere."""
    views = _views(lowering, group)
    if any(lowering.spec.is_selection(view.row) for view in views.values()):
        return None
    epilogue, own = None, _pointers(lowering, group)
    right = own[1]
    if len(group.rows) > 1:
        finish = _Finish(lowering, group, target)
        own = finish.frame(1, "ptr %arguments").pointers
        epilogue = Epilogue(finish.define, len(own) - 3)
    stored = {position: lowering.spec.element_of(view.row).name for position, view in views.items()}
    task = product_task(lowering, group.rows[0])
    task = task._replace(left_element=stored.get(0, ""), right_element=stored.get(1, ""))
    task, own = _with_worked_out(lowering, group, target, task, own)
    return _Contraction(task, own, right, epilogue)


def _views(lowering: Lowering, group: Group) -> dict[int, View]:
    """The operands in memory, by position."""
    operands = enumerate(lowering.spec.rows[group.rows[0]].operands)
    return {position: lowering.view(row) for position, row in operands if position not in group.prologues}


def _with_worked_out(
    lowering: Lowering, group: Group, target: Target, task: ProductTask, own: list[Pointer]
) -> tuple[ProductTask, list[Pointer]]:
    """The task and its arguments with the operands that it works out."""
    begin = len(own)
    for position in sorted(group.prologues):
        operand = WorkedOut(lowering, group, position, target, own)
        wide = "f64" if task.element == "f64" else "f32"
        value, strides = operand.value(), operand.strides()
        if position == 0:
            task = task._replace(left=strides, left_element=wide, left_value=value)
        else:
            task = task._replace(right=strides, right_element=wide, right_value=value)
        own = own + operand.pointers()
    return task._replace(pointers=len(own) - begin), own


def _weight(lowering: Lowering, made: _Contraction, target: Target) -> Weight | None:
    """The right operand where it is a parameter or a constant that a product gains by finding packed."""
    row = made.right.row
    if row in lowering.constants or not isinstance(lowering.spec.rows[row].opcode, Parameter | Leaf):
        return None
    found = prepacked(made.task, target, made.epilogue)
    return None if found is None else Weight(made.right, found)


def _pointers(lowering: Lowering, group: Group) -> list[Pointer]:
    """Left, right, and the first result, which stands for an operand that lies nowhere."""
    out = Pointer(group.writes[0], 0)
    places = [out, out, out]
    for position, view in _views(lowering, group).items():
        item = lowering.spec.element_of(view.row).dtype.itemsize
        places[position] = Pointer(view.row, view.offset * item)
    return places


def product_task(lowering: Lowering, row: int) -> ProductTask:
    """The work of a product whose operands are read where they lie."""
    recorded = lowering.spec.rows[row]
    left, right = (lowering.view(operand) for operand in recorded.operands)
    out = lowering.views[row].strides
    batch = tuple(
        Batch(recorded.shape[axis], left.strides[axis], right.strides[axis], out[axis])
        for axis in range(recorded.shape.rank - 2)
    )
    rows, columns = recorded.shape[-2:]
    return ProductTask(
        lowering.spec.element_of(row).name,
        rows,
        left.shape[-1],
        columns,
        (left.strides[-2], left.strides[-1]),
        (right.strides[-2], right.strides[-1]),
        (out[-2], out[-1]),
        batch,
        left_grid=None if left.grid is None else Grid(*left.grid),
    )


class _Finish:
    """The elementwise rows after a product, as a function over its finished lanes."""

    def __init__(self, lowering: Lowering, group: Group, target: Target) -> None:
        self.lowering, self.group, self.target = lowering, group, target
        inside = set(group.rows)
        followers = [operand for row in group.rows[1:] for operand in lowering.spec.rows[row].operands]
        outside = [o for o in followers if o not in lowering.constants and lowering.views[o].row not in inside]
        self.reads = list(dict.fromkeys(outside))

    def frame(self, lanes: int, parameters: str) -> Frame:
        """A function that reads what the rows read and stores what the group stores."""
        lowering, group = self.lowering, self.group
        frame = Frame(lowering, self.target, lanes, Function(parameters))
        frame.pointers += _pointers(lowering, group)
        for row in self.reads:
            frame.read(row)
        sizes = [frame.element(row).dtype.itemsize for row in group.writes]
        self.outputs = [
            (row, frame.add(lowering.views[row], size)) for row, size in zip(group.writes, sizes, strict=True)
        ]
        return frame

    def define(self, finish: Finish) -> Definition:
        """Its text, for lanes along the columns of the result or along its rows."""
        frame = self.frame(finish.lanes, finish.parameters)
        written = {row: list(self.lowering.views[row].strides) for row in self.group.writes}
        for map in [*written.values(), *(map for read in frame.reads.values() for map in read.maps)]:
            if finish.along_rows:
                map[-2:] = map[:-3:-1]
        row, column = Operand(INT64, "%row"), Operand(INT64, "%column")
        across, along = (column, row) if finish.along_rows else (row, column)
        outer = (*batch_indices(frame.function, self.group.shape[:-2]), across)
        place = Place(outer, along, None if finish.active == finish.lanes else finish.active)
        first = self.group.rows[0]
        m = frame.arithmetic(frame.element(first))
        held = {first: frame.reading.lanes_of(Operand(vector(m.item, finish.lanes), "%value"))}
        evaluator = Evaluator(frame, self.group)
        evaluator.evaluate(needed(frame, self.group), held, evaluator.values(place, held))
        for result, pointer in self.outputs:
            frame.store(frame.arithmetic(frame.element(result)), held[result], pointer, written[result], place)
        return Definition(frame.function.text(finish.name), tuple(frame.function.helpers))
