"""A notebook's page: HTML and SVG of what people look at.

In which order to read it: `markup` has the pieces (cells, tables, bars), all of them escaped; `store` shows a store,
`tables` an Arrow table and `timeline` a history; `extension` is `%load_ext rmqstore_spark`.
"""
