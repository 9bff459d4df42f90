"""Parts of the independent checker of restrictions; they import nothing of the search.

Everything here is written for checking, in NumPy, from docs/model-format.md and from
docs/certificates-of-restrictions.md, section 2: neither the search nor the forward pass of
`jax_models` is used, save where a concrete input is run.
"""
