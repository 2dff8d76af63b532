"""Files that are ready come to count, all at once, whenever the writer is killed.

change has `Change`, the protocol, and describes its steps; steps do and undo the work before the commit point;
publication has the two commit points (directories exchanged, or an append in place), replacement the third: a whole
store in another's place. journal outlives a killed writer, moves finds out which files come into the store, site has
the paths, sweep removes the remains of killed writes.
"""
