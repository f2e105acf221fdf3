"""The catalog: compositions found in the rows of a spec, as data; whoever wants some of them elects.

`columns` is what is searched, `terms` and `axes` are the language that a composition is described in, `layout` tells
where the parts of windows lie. A family of compositions is a file; `gradients` finds what the derivative rules make of
any of them. `pool` collects, `elect` chooses.
"""
