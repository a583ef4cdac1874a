"""Speed only: everything here equals a plain expression in the tests."""
