"""Several modules as one, which takes what each takes and answers what each answers, one after another.

To compile a module costs some 60 ms whatever it says, so that small ones are compiled together.
"""

import re
from collections.abc import Sequence

HEAD = re.compile(r"  func\.func @main\((?P<given>.*)\) -> \((?P<answered>.*)\) \{")
TENSOR = re.compile(r"tensor<[^>]*>")


def merged(texts: Sequence[str]) -> str:
    """Each module's function as it stands under a name of its own, and a `main` that calls them in order."""
    functions, calls, given, answered = [], [], [], []
    for at, text in enumerate(texts):
        module, head, *body, end = text.splitlines()
        found = HEAD.fullmatch(head)
        assert (module, end) == ("module @topos {", "}") and found is not None, text
        takes, gives = TENSOR.findall(found["given"]), TENSOR.findall(found["answered"])
        functions += [head.replace("func.func @main", f"func.func private @part{at}"), *body]
        names = [f"%arg{place}" for place in range(len(given), len(given) + len(takes))]
        results = f"%v{at}:{len(gives)} = " if gives else ""
        signature = f"({', '.join(takes)}) -> ({', '.join(gives)})"
        calls.append(f"    {results}func.call @part{at}({', '.join(names)}) : {signature}")
        given += [f"{name}: {kind}" for name, kind in zip(names, takes, strict=True)]
        answered += [(f"%v{at}#{place}", kind) for place, kind in enumerate(gives)]
    kinds = ", ".join(kind for _, kind in answered)
    returned = f"    return {', '.join(name for name, _ in answered)} : {kinds}" if answered else "    return"
    main = f"  func.func @main({', '.join(given)}) -> ({kinds}) {{"
    return "\n".join(["module @topos {", *functions, main, *calls, returned, "  }", "}"])
