"""Two replicas of Draftwood's server behind Ray Serve, each with an engine of its own.

    pip install 'draftwood[serve]' 'ray[serve]'
    serve run examples.ray_serve:app

Ray Serve sends each request to the replica with the fewest running ones. The memory and the prefix
cache are each replica's own.
"""

import os

from ray import serve

MODEL = os.environ.get("DRAFTWOOD_MODEL", "embedded")
REPLICAS = int(os.environ.get("DRAFTWOOD_REPLICAS", "2"))
THREADS = int(os.environ.get("DRAFTWOOD_THREADS", "1"))
REQUESTS = 8
"""Most requests that a replica decodes at once; as many may wait."""


def application():
    """The API of one replica, made in the replica's own process."""
    import torch

    torch.set_num_threads(THREADS)

    from draftwood import Engine
    from draftwood.server.app import application
    from draftwood.server.parsing import parser_maker, response_template
    from draftwood.server.service import started
    from draftwood.server.settings import ServeSettings
    from draftwood.server.tools import call_form

    engine = Engine.load(MODEL, "auto", max_batch=REQUESTS)
    model, tokenizer, info = engine.target.model, engine.tokenizer, engine.target.info
    settings = ServeSettings((MODEL,), MODEL, info.context_limit)
    service = started(
        engine,
        settings,
        most=2 * REQUESTS,
        parser=parser_maker(tokenizer, model),
        call_form=call_form(response_template(tokenizer, model)),
        eos=info.eos,
    )
    return application(service)


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=2 * REQUESTS,
    ray_actor_options={"num_cpus": THREADS},
)
@serve.ingress(application)
class Replica:
    """One engine with its server."""


app = Replica.bind()
