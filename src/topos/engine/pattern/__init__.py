"""The catalog: compositions found in the rows of a spec, as data; whoever wants some of them elects.

`columns` is what is searched, `terms` the language that a composition is described in, `layout` the one for windows.
A family of compositions is a file; `gradients` finds what the derivative rules make of any of them. `pool` collects,
`elect` chooses.
"""
