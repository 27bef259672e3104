"""Adds rows to a database, and prints the number of each after its commit, until its input ends.

Arguments: the database, the journal mode, the number of this writer.
"""

import os
import select
import sqlite3
import sys

path, mode, writer = sys.argv[1:]
database = sqlite3.connect(path, timeout=120, isolation_level=None)
assert database.execute(f"pragma journal_mode={mode}").fetchone() == (mode,)
database.execute("pragma synchronous=full")
database.execute("create table if not exists t (writer, number, bytes, primary key (writer, number))")
number = 0
while not select.select([0], [], [], 0)[0]:
    row = (int(writer), number, os.urandom(3000))
    database.execute("insert into t values (?, ?, ?)", row)
    print(number, flush=True)
    number += 1
database.close()
