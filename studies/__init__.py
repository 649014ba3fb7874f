"""Studies of error: how wrong the tests are, how many rows they read, and the pages of docs/ that report this.

A study is a module with `Config`, `run`, `page` and perhaps `pictures`; `studies.study` says what each promises.

    python -m studies tails --quick     runs a study at a small size, and prints what it found
    python -m studies tails             runs it in full, writes results/tails.json and draws its pictures
    python -m studies all               runs every study in full
    python -m studies pages             writes the figures of all result files into README.md and docs/
"""
