"""How a worker of the pool sleeps and is woken, as LLVM text: one way per kind of system.

A worker that has found nothing for a while sleeps. It counts itself in `sleepers` and then looks at `left` once more;
the dispatcher writes `left` and then looks at `sleepers`: one of the two sees the other. Each way defines
`void @pool_prepare()`, called once, `void @sleep(i64 epoch)`, which may return early, and `void @wake(i64 most)`.
"""

from __future__ import annotations

WAITS = {
    "futex": """
declare i64 @syscall(i64, ...)
define void @pool_prepare() nounwind {
  ret void
}
define internal void @sleep(i64 %epoch) nounwind {
entry:
  %before = atomicrmw add ptr $SLEEPERS$, i64 1 seq_cst, align 8
  %seen = load atomic i32, ptr $SEQUENCE$ seq_cst, align 4
  %nothing = call i1 @nothing(i64 %epoch)
  br i1 %nothing, label %wait, label %end
wait:
  %unused = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr $SEQUENCE$, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  br label %end
end:
  %after = atomicrmw sub ptr $SLEEPERS$, i64 1 seq_cst, align 8
  ret void
}
define internal void @wake(i64 %most) nounwind {
  %before = atomicrmw add ptr $SEQUENCE$, i32 1 seq_cst, align 4
  %few = call i64 @llvm.umin.i64(i64 %most, i64 2147483647)
  %unused = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr $SEQUENCE$, i64 129, i64 %few, ptr null, ptr null, i64 0)
  ret void
}
declare i64 @llvm.umin.i64(i64, i64)
""",
    "condition": """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define void @pool_prepare() nounwind {
  %mutex = call i32 @pthread_mutex_init(ptr $MUTEX$, ptr null)
  %condition = call i32 @pthread_cond_init(ptr $CONDITION$, ptr null)
  ret void
}
define internal void @sleep(i64 %epoch) nounwind {
entry:
  %locked = call i32 @pthread_mutex_lock(ptr $MUTEX$)
  %before = atomicrmw add ptr $SLEEPERS$, i64 1 seq_cst, align 8
  %nothing = call i1 @nothing(i64 %epoch)
  br i1 %nothing, label %wait, label %end
wait:
  %unused = call i32 @pthread_cond_wait(ptr $CONDITION$, ptr $MUTEX$)
  br label %end
end:
  %after = atomicrmw sub ptr $SLEEPERS$, i64 1 seq_cst, align 8
  %unlocked = call i32 @pthread_mutex_unlock(ptr $MUTEX$)
  ret void
}
define internal void @wake(i64 %most) nounwind {
  %locked = call i32 @pthread_mutex_lock(ptr $MUTEX$)
  %unused = call i32 @pthread_cond_broadcast(ptr $CONDITION$)
  %unlocked = call i32 @pthread_mutex_unlock(ptr $MUTEX$)
  ret void
}
""",
    "polling": """
declare $NAP_DECLARED$
define void @pool_prepare() nounwind {
  ret void
}
define internal void @sleep(i64 %epoch) nounwind {
entry:
  %nothing = call i1 @nothing(i64 %epoch)
  br i1 %nothing, label %wait, label %end
wait:
  call $NAP_TYPE$ @$NAP$
  br label %end
end:
  ret void
}
define internal void @wake(i64 %most) nounwind {
  ret void
}
""",
}
