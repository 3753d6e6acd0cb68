"""What `wengert demo` does: `training` has the data and the network, `peer` the same in PyTorch; `terminal`, `picture` and
`page` show what came out. All but this file need the packages of the extra `demo`.
"""
