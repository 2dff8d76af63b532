"""The only code that changes anything on a disk.

calls has every such call behind one gate, `do`, at which tests stop and kill a write. disk has `Tree`: a directory in
which no link is ever followed (walk), whose entries come into place by one rename or exchange. new_file, modes (the
permissions of new files), remove_tree, lock (the store's), workshop (the writer's own directory), background (threads
that work ahead).
"""
