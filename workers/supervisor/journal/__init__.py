"""The supervisor's write-ahead journal, from which its successor continues."""
