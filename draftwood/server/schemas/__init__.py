"""The bodies of requests and responses, as structs.

A field's description says what the server does with it; ``docs/serving.md`` lists them.
"""
