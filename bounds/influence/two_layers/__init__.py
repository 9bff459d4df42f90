"""Two softmax layers with a ReLU block between them, by products of matrices.

A column is the key and value at a replaced position. All columns of a block replace one
symbol by one other, so that the changes dk and dv of key and value are the same at
every position. With q_j the query of row j, s = q_j . dk the change of its score and E
= sign(s) (1 - e^-|s|), a column i of old weight a changes what row j attends to by

    tau (e^min(s, 0) dv + E (v_i - b_j)),      tau = p / (1 + E p),      p = a e^max(s, 0),

with b_j the value that row j attends to and v_i the column's: a pair (j, i) is one
scalar tau per head. Where no neuron flips (becomes active, or ceases to be), scores and
values of the second layer are linear in tau, with factors that belong to the row or to
the column alone, and no vector is formed per pair. Results of columns whose sums over
rows lose digits are NaN: they are computed again, with a vector for each pair.
"""
