"""An HTTP server that speaks the OpenAI API, on an engine of its own thread.

Needs the extra ``serve``. ``draftwood.cli.serve`` starts it.
"""
