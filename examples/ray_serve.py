"""Two replicas of Draftwood's server behind Ray Serve, each with an engine of its own.

    pip install 'draftwood[serve] @ git+https://github.com/draftwood/draftwood' 'ray[serve]'
    serve run examples.ray_serve:app

Ray Serve sends each request to the replica with the fewest running ones. The memory and the cached
prompts are each replica's own.
"""

import os

from ray import serve

MODEL = os.environ.get("DRAFTWOOD_MODEL", "embedded")
REPLICAS = int(os.environ.get("DRAFTWOOD_REPLICAS", "2"))
THREADS = int(os.environ.get("DRAFTWOOD_THREADS", "1"))
REQUESTS = 8
"""Most requests that a replica decodes at once; as many may wait."""


def application():
    """The API of one replica, made in the replica's own process.

    Its engine stops when the lifespan of the application ends.
    """
    import torch

    torch.set_num_threads(THREADS)

    import draftwood
    from draftwood.server.app import application
    from draftwood.server.loaded import service_of

    loaded = draftwood.load(MODEL)
    return application(service_of(loaded, max_batch=REQUESTS, max_queue=REQUESTS))


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=2 * REQUESTS,
    ray_actor_options={"num_cpus": THREADS},
)
@serve.ingress(application)
class Replica:
    """One engine with its server."""


app = Replica.bind()
