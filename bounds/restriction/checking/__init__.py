"""The parts of the independent checker; they import nothing of the search.

Everything here is written for checking, in NumPy, from the model format and from
hard-attention.md section 5.6: neither the search nor the forward pass of `jax_models`
is used, save where a concrete input is run.
"""
