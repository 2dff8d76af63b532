"""In a task: rows become staged units.

incoming checks and converts columns, rows has `RowEncoder`, job_directory makes the directory that the tasks of a job
stage in.
"""
