"""What is done with whole stores, by way of tables, reads and writes.

copy has `CopyJob`, for copies and salvages (its parts are in copying), history what happened to one message, summary
and glance a store on one screen.
"""
