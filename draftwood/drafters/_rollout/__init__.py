"""Runs a draft model over growing trees and answers a policy's queries.

* ``drafter``: what drafters with a model have in common; ``model_drafter``: those with a language
  model; ``head_drafter``: those with a head;
* ``rollout``: the forwards, level by level, over a batch; ``entries``: their KV cache entries;
* ``answers``: the answers to queries from the outputs at their nodes;
* ``reading``: the model's own tokens for the target's;
* ``topk``: the likeliest tokens after a node; ``vocabulary``: the target's ids of the outputs;
* ``draws``: tokens sampled from q by ``gumbel``'s top-k, with q stored for the accept rule;
* ``coupling``: tokens sampled with the target's own random numbers.
"""
