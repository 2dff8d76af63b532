"""Writing a store: rows in, a store that a broker starts on out. Only this room changes anything on disk.

The room answers: how do rows become a store, all or none, whenever the writer is killed? job has `WriteJob`, the way
through the room: begin, stage, commit, abandon. commit is the last step, with append (messages behind those of a
store); new_store makes the store of a copy, rebuild makes ConsumeQueues and index anew,
config_file one file of config/.

Below them: publish (files that are ready come to count, at once), stage (in a task: rows become units), build (from
staged units to the files of a store), fs (every call that changes something on a disk).
"""
