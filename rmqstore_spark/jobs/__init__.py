"""Work on whole stores, by way of tables, reads and writes.

copy has `CopyJob`, for copies and salvages (its parts are in copying). history tells what happened to one message;
summary and glance show a store on one screen.
"""
