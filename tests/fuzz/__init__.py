"""A fuzzer of the command line: `make fuzz`, and a few cases of it in the test suite."""
