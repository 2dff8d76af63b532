"""fsck for stores: the table `check`."""
