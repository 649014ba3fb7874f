"""How long a person waits, from `import` to 4000 effective draws: `python -m benchmarks.time_to_answer`.

Every run is a fresh process that has its rows in memory as NumPy arrays; the clock starts before the library is
imported, and stops when the answer is there. Runs of all methods are interleaved, with medians. Three temperatures:

- cold: no compiled program is kept anywhere;
- cached: a second process, which finds JAX's compiled programs on disk;
- again: the second call in one process.
"""
