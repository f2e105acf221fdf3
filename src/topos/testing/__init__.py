"""What grades topos, and what a user's own element, backend, optimizer or module is graded with."""

from topos.testing.backends import Grade, grade_backend
from topos.testing.golden import assert_golden
from topos.testing.gradients import check_gradient
from topos.testing.optimizers import grade_optimizer
from topos.testing.same_bits import assert_same_bits, same_bits

__all__ = [
    "Grade",
    "assert_golden",
    "assert_same_bits",
    "check_gradient",
    "grade_backend",
    "grade_optimizer",
    "same_bits",
]
