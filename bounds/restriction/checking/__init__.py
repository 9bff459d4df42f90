"""Parts of the independent checker of restrictions; they import nothing of the search.

They are written for checking, in NumPy, from docs/model-format.md and
docs/certificates-of-restrictions.md, section 2, without the forward pass of `jax_models`.
"""
