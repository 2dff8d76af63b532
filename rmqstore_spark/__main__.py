"""`python -m rmqstore_spark`: the same as the command `rmqstore`."""

from rmqstore_spark.cli.main import main

if __name__ == "__main__":
    main()
