"""The few parts every architecture is made of.

Shapes are written with the same letters everywhere: `B` batch, `T` queries, `S` keys, `D` width, `H` heads, `K` key
and value heads, `E` head width, `F` hidden width of a feed-forward, `V` vocabulary, `N` experts.
"""
