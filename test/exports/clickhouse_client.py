"""The words of `clickhouse-client` on ClickHouse's engine in this process (chdb): --query, --SETTING=VALUE, rows on
standard input. Its data is in the folder that CLICKHOUSE_FOLDER names."""

import os
import sys

from chdb.session import Session

query, settings = "", []
words = iter(sys.argv[1:])
for word in words:
    if word == "--query":
        query = next(words)
    else:
        settings.append(word.removeprefix("--"))
session = Session(os.environ["CLICKHOUSE_FOLDER"])
for setting in settings:
    name, value = setting.split("=")
    session.query(f"SET {name} = '{value}'")
if query.startswith("INSERT"):
    session.query(query + "\n" + sys.stdin.read())
else:
    for statement in query.split(";"):
        if statement.strip():
            sys.stdout.write(str(session.query(statement)))
session.close()
