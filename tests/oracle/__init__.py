"""What is right, in the plainest Python there is. No test is in here, and nothing of the package that is judged."""
