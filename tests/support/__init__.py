"""How tests run the package below Spark, and stop, kill, attack and confine it."""
