"""The thread pool as LLVM text: how a job is posted, taken tile by tile, and waited for.

A job is a function, its arguments and a number of tiles, below 2**32. Posting it writes these, then `left`: the count
of tiles that nobody has taken, and in its upper half, until none is left, how many were taken from the end. Whoever
finds `left` above 0 takes one by compare-and-swap: the dispatcher the first that is left, the others the last. So from
kernel to kernel a thread has about the same part of the work, and what it wrote is still in its caches. The job cannot
end before that tile is done, so what is read after taking is of the same job, however late the worker came: a worker
that saw an older job finds `left` at 0, or takes part in the newer one. The dispatcher then waits until the others'
`done` adds up.

Whoever takes part has a number of its own, told to every tile that it runs: the next of `joined` at its first tile, so
that there are no more numbers than tiles. `busy` lets one job in at a time; whoever finds it taken, a tile that
dispatches included, runs its own tiles in a loop, and so nothing ever waits in a circle.
"""

from __future__ import annotations

import platform
import sys

from topos.backend.native.pool_waits import WAITS

# Where each word of the state lies. What one thread writes while others read stands 128 bytes from the next: processors
# fetch lines of 64 in pairs.
LEFT, FUNCTION, ARGUMENTS, TILES = 0, 8, 16, 24
DONE, JOINED, BUSY, SLEEPERS = 128, 136, 256, 384
EPOCH, WORKERS, SPIN = 512, 520, 528
SEQUENCE = 640
_MUTEX, _CONDITION = 768, 896
STATE_BYTES = 1024

_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}

# How often a dispatcher looks before it lets others have its processor between looks.
_PATIENCE = 2000


def waiting() -> str:
    """How workers sleep on this system: `futex`, `condition` (POSIX) or `polling`."""
    if sys.platform == "linux" and platform.machine() in _FUTEX_NUMBERS:
        return "futex"
    return "polling" if sys.platform == "win32" else "condition"


def pool_text(kind: str, wait: str) -> str:
    """The pool for an architecture (`x86`, `aarch64`, `other`) and a way to wait."""
    pause = {
        "x86": "call void @llvm.x86.sse2.pause()",
        "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    }.get(kind, 'fence syncscope("singlethread") seq_cst')
    declared = {"x86": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}
    give_way = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
    text = "\n".join([_POOL, WAITS[wait], declared.get(kind, "")])
    words = {
        "PAUSE": pause, "GIVE_WAY": give_way, "PATIENCE": _PATIENCE, "STATE_BYTES": STATE_BYTES,
        "FUTEX": _FUTEX_NUMBERS.get(platform.machine(), 202),
        "NAP": "Sleep(i32 1)" if sys.platform == "win32" else "usleep(i32 200)",
        "NAP_DECLARED": "void @Sleep(i32)" if sys.platform == "win32" else "i32 @usleep(i32)",
        "NAP_TYPE": "void" if sys.platform == "win32" else "i32",
        **{name: _at(offset) for name, offset in _PLACES.items()},
    }  # fmt: skip
    for name, word in words.items():
        text = text.replace(f"${name}$", str(word))
    return text


_PLACES = {
    "LEFT": LEFT, "FUNCTION": FUNCTION, "ARGUMENTS": ARGUMENTS, "TILES": TILES, "DONE": DONE, "JOINED": JOINED,
    "BUSY": BUSY, "SLEEPERS": SLEEPERS, "EPOCH": EPOCH, "WORKERS": WORKERS, "SPIN": SPIN, "SEQUENCE": SEQUENCE,
    "MUTEX": _MUTEX, "CONDITION": _CONDITION,
}  # fmt: skip


def _at(offset: int) -> str:
    return f"getelementptr (i8, ptr @state, i64 {offset})"


_POOL = """
@state = internal global [$STATE_BYTES$ x i8] zeroinitializer, align 128
declare i32 @$GIVE_WAY$()

define ptr @pool_state() nounwind {
  ret ptr @state
}

define void @pool_pause(i64 %times) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  $PAUSE$
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}

; Takes tiles until none is left; how many it ran.
define internal i64 @take_part(i1 %helps) nounwind {
entry:
  br label %look
look:
  %ran = phi i64 [ 0, %entry ], [ %ran, %take ], [ %ran_more, %run ]
  %known = phi i64 [ -1, %entry ], [ %known, %take ], [ %worker, %run ]
  %left = load atomic i64, ptr $LEFT$ acquire, align 8
  %some = icmp ne i64 %left, 0
  br i1 %some, label %take, label %end
take:
  %untaken = and i64 %left, 4294967295
  %from_end = lshr i64 %left, 32
  %step = select i1 %helps, i64 4294967295, i64 -1
  %fewer_of_job = add i64 %left, %step
  %is_last = icmp eq i64 %untaken, 1
  %fewer = select i1 %is_last, i64 0, i64 %fewer_of_job
  %swap = cmpxchg ptr $LEFT$, i64 %left, i64 %fewer acq_rel monotonic, align 8
  %taken = extractvalue { i64, i1 } %swap, 1
  br i1 %taken, label %taken_one, label %look
taken_one:
  %unknown = icmp slt i64 %known, 0
  br i1 %unknown, label %join, label %run
join:
  %next = atomicrmw add ptr $JOINED$, i64 1 monotonic, align 8
  br label %run
run:
  %worker = phi i64 [ %known, %taken_one ], [ %next, %join ]
  %function = load ptr, ptr $FUNCTION$, align 8
  %arguments = load ptr, ptr $ARGUMENTS$, align 8
  %tiles = load i64, ptr $TILES$, align 8
  %not_first = add i64 %untaken, %from_end
  %first = sub i64 %tiles, %not_first
  %behind = add i64 %from_end, 1
  %last = sub i64 %tiles, %behind
  %tile = select i1 %helps, i64 %last, i64 %first
  call void %function(ptr %arguments, i64 %tile, i64 %worker)
  %ran_more = add i64 %ran, 1
  br label %look
end:
  ret i64 %ran
}

; A worker: it stays here until the pool is given another epoch.
define void @pool_worker(i64 %epoch) nounwind {
entry:
  %saved = call i64 @enter_default_mode()
  %spin = load i64, ptr $SPIN$, align 8
  br label %wait
wait:
  br label %look
look:
  %i = phi i64 [ 0, %wait ], [ %next, %pause ]
  %left = load atomic i64, ptr $LEFT$ acquire, align 8
  %some = icmp ne i64 %left, 0
  br i1 %some, label %work, label %idle
idle:
  %now = load atomic i64, ptr $EPOCH$ acquire, align 8
  %current = icmp eq i64 %now, %epoch
  br i1 %current, label %stay, label %end
stay:
  %patient = icmp slt i64 %i, %spin
  br i1 %patient, label %pause, label %sleep
pause:
  $PAUSE$
  %next = add i64 %i, 1
  br label %look
sleep:
  call void @sleep(i64 %epoch)
  br label %wait
work:
  %ran = call i64 @take_part(i1 true)
  %any = icmp ne i64 %ran, 0
  br i1 %any, label %report, label %wait
report:
  %before = atomicrmw add ptr $DONE$, i64 %ran release, align 8
  br label %wait
end:
  call void @leave_default_mode(i64 %saved)
  ret void
}

; `void function(ptr arguments, i64 tile, i64 worker)` over tiles 0 to tiles - 1.
define void @pool_run(ptr %function, ptr %arguments, i64 %tiles) nounwind {
entry:
  %workers = load atomic i64, ptr $WORKERS$ monotonic, align 8
  %alone = icmp eq i64 %workers, 0
  %single = icmp slt i64 %tiles, 2
  %no_help = or i1 %alone, %single
  br i1 %no_help, label %loop_or_not, label %enter
enter:
  %swap = cmpxchg ptr $BUSY$, i64 0, i64 1 acquire monotonic, align 8
  %free = extractvalue { i64, i1 } %swap, 1
  br i1 %free, label %post, label %loop_or_not
post:
  store ptr %function, ptr $FUNCTION$, align 8
  store ptr %arguments, ptr $ARGUMENTS$, align 8
  store i64 %tiles, ptr $TILES$, align 8
  store atomic i64 0, ptr $DONE$ monotonic, align 8
  store atomic i64 0, ptr $JOINED$ monotonic, align 8
  %was = atomicrmw xchg ptr $LEFT$, i64 %tiles seq_cst, align 8
  %sleepers = load atomic i64, ptr $SLEEPERS$ seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %call, label %work
call:
  %helpers = sub i64 %tiles, 1
  call void @wake(i64 %helpers)
  br label %work
work:
  %ran = call i64 @take_part(i1 false)
  %others = sub i64 %tiles, %ran
  br label %look
look:
  %i = phi i64 [ 0, %work ], [ %next, %pause ], [ %next, %give_way ]
  %done = load atomic i64, ptr $DONE$ acquire, align 8
  %all = icmp eq i64 %done, %others
  br i1 %all, label %leave, label %more
more:
  %next = add i64 %i, 1
  %patient = icmp slt i64 %i, $PATIENCE$
  br i1 %patient, label %pause, label %give_way
pause:
  $PAUSE$
  br label %look
give_way:
  %unused = call i32 @$GIVE_WAY$()
  br label %look
leave:
  store atomic i64 0, ptr $BUSY$ release, align 8
  ret void
loop_or_not:
  %none = icmp slt i64 %tiles, 1
  br i1 %none, label %end, label %loop
loop:
  %tile = phi i64 [ 0, %loop_or_not ], [ %tile_next, %loop ]
  call void %function(ptr %arguments, i64 %tile, i64 0)
  %tile_next = add i64 %tile, 1
  %again = icmp slt i64 %tile_next, %tiles
  br i1 %again, label %loop, label %end
end:
  ret void
}

define void @pool_run_from_python(ptr %function, ptr %arguments, i64 %tiles) nounwind {
  %saved = call i64 @enter_default_mode()
  call void @pool_run(ptr %function, ptr %arguments, i64 %tiles)
  call void @leave_default_mode(i64 %saved)
  ret void
}

; Every worker of an older epoch leaves.
define void @pool_set_epoch(i64 %epoch) nounwind {
  store atomic i64 %epoch, ptr $EPOCH$ seq_cst, align 8
  call void @wake(i64 2147483647)
  ret void
}

; Whether there is reason to sleep: nothing to do and nowhere to go. Asked after being counted among the sleepers.
define internal i1 @nothing(i64 %epoch) nounwind {
  %left = load atomic i64, ptr $LEFT$ seq_cst, align 8
  %now = load atomic i64, ptr $EPOCH$ seq_cst, align 8
  %current = icmp eq i64 %now, %epoch
  %none = icmp eq i64 %left, 0
  %answer = and i1 %current, %none
  ret i1 %answer
}
"""
