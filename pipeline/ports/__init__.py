"""What the steps need from the outside: clocks, stores, the model, the broker.

All stores: datetimes are aware UTC cut to milliseconds; `*_ms` is the database server's time in
epoch milliseconds; reads that decide are from the primary; each method is one atomic command
unless it says otherwise, and may raise `pymongo.errors.PyMongoError`.
"""
