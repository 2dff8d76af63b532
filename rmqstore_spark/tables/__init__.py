"""What is in a store besides its messages, and about them: one table for each kind of question."""
