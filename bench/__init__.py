"""Speed and memory against peers in one run: `python -m bench [CASE ...] [--device cuda]`; see `case.py`."""
