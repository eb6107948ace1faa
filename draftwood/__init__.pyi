"""Lossless tree speculative decoding for any Hugging Face causal language model.

Written by ``python -m tests.stub``.
"""

from typing import Any, Literal

from transformers import PreTrainedModel

from draftwood.engine.request import Completion as Completion
from draftwood.integrations.transformers import CustomGenerate as CustomGenerate
from draftwood.engine.request import Delta as Delta
from draftwood.errors import DraftwoodError as DraftwoodError
from draftwood.engine.engine import Engine as Engine
from draftwood.engine.request import Finished as Finished
from draftwood.grammars.grammar import Grammar as Grammar
from draftwood.methods.recipe import Method as Method
from draftwood.protocols.recipe import Recipe as Recipe
from draftwood.engine.request import Request as Request
from draftwood.sampling.params import SamplingParams as SamplingParams
from draftwood.engine.session import Session as Session
from draftwood.engine.request import Stepped as Stepped
from draftwood.engine.logprobs import TokenLogprob as TokenLogprob
from draftwood.tree import TokenTree as TokenTree
from draftwood.runner.attach import attach as attach
from draftwood.integrations.transformers import custom_generate as custom_generate
from draftwood.runner.attach import detach as detach
from draftwood.models import embedded as embedded
from draftwood.integrations.transformers import generate as generate
from draftwood.models import load as load
from draftwood.methods import method as method

__version__: str
__all__ = ["Completion", "CustomGenerate", "Delta", "DraftwoodError", "Engine", "Finished", "Grammar", "Method", "Recipe", "Request", "SamplingParams", "Session", "Stepped", "TokenLogprob", "TokenTree", "attach", "custom_generate", "detach", "embedded", "generate", "load", "method"]

def ar(
    *,
    verifier: str = 'walk',
) -> CustomGenerate:
    """Plain decoding through the same engine.

    Args:
        verifier: accept rule: block, rejection, traversal, walk.
    """

def auto(
    *,
    context: str = 'context',
    adjacency: str = 'adjacency',
    drafter: str | None = None,
    draft: str | PreTrainedModel | None = None,
    head: str | Any | None = None,
    verifier: str = 'traversal',
    budget: int = 64,
    max_depth: int = 64,
    width: int = 8,
    level: int = 8,
    chain: str = 'context',
    table: str = 'adjacency',
    neural: tuple[str, ...] = (),
    layout: Literal['coupled', 'ranked', 'drawn', 'either'] = 'coupled',
    shape: Literal['tree', 'chain'] = 'tree',
    also: tuple[str, ...] = (),
    calibration: str = '',
    shipped: Literal['all', 'table', 'calibration', 'off'] = 'all',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 64,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = True,
    adjacency__width: int = 10,
    adjacency__min_score: float = 0.01,
    adjacency__bigram: bool = True,
    adjacency__shared: bool = False,
    adjacency__max_rows: int = 65536,
    adjacency__harvest: Literal['all', 'accepted'] = 'all',
    adjacency__prompt: bool = False,
    adjacency__table: str | None = None,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """One tree of all sources' candidates, sized by costs and acceptance.

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        adjacency: which drafter answers the source adjacency: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        max_depth: deepest node.
        width: most successors of a node to ask the table for.
        level: most nodes of a draft level, and most children of each.
        chain: name of the source that copies; empty: none.
        table: name of the source that ranks; empty: none.
        neural: sources with a model, such as draft+eagle3; each is asked where it pays.
        layout: a model's drafts above temperature 0: Gumbel top-k with the target's noise, the
            likeliest tokens, samples, or the better of the last two; with the last two a seed
            does not decide the tokens.
        shape: draft a tree, or the one path of it with the most expected tokens.
        also: further sources: names of drafters that say what they know.
        calibration: file of 'draftwood calibrate' to start from; empty: the one shipped for the
            model.
        shipped: use what is shipped for the model where nothing else is given: head, table and
            calibration; the last two; the calibration; nothing.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
        adjacency__width: successors stored per key (K).
        adjacency__min_score: least probability a successor needs to be offered.
        adjacency__bigram: look up the last two tokens first; off: the last token only.
        adjacency__shared: one table for all requests of a namespace, not emptied between them.
        adjacency__max_rows: most keys stored; the oldest is dropped first.
        adjacency__harvest: learn from every node of a tree, or from the accepted ones only.
        adjacency__prompt: learn at all positions of the prompt, for which the output layer runs
            on them too.
        adjacency__table: prepared table, a file made by draftwood harvest.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def goose(
    *,
    context: str = 'context',
    adjacency: str = 'adjacency',
    verifier: str = 'walk',
    budget: int = 59,
    max_depth: int = 6,
    rho: float = 0.5,
    top_k: int = 10,
    min_score: float = 0.01,
    ratio: float = 0.0,
    bypass: Literal['distinct', 'paper', 'off'] = 'distinct',
    bypass_length: int = 8,
    chain: str = 'context',
    min_chain: int = 1,
    spine: Literal['on', 'off', 'control'] = 'on',
    spine_branches: bool = True,
    branches: str = 'adjacency',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
    adjacency__width: int = 10,
    adjacency__min_score: float = 0.01,
    adjacency__bigram: bool = True,
    adjacency__shared: bool = False,
    adjacency__max_rows: int = 65536,
    adjacency__harvest: Literal['all', 'accepted'] = 'all',
    adjacency__prompt: bool = True,
    adjacency__table: str | None = None,
) -> CustomGenerate:
    """A spine copied from the context, with branches from the adjacency table.

    Source: GOOSE (spine trees of context match and adjacency).

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        adjacency: which drafter answers the source adjacency: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        max_depth: deepest branch, from its branching point (D).
        rho: share of the branches that goes to the spine's nodes.
        top_k: most children per node (K).
        min_score: least probability of a branch node that is not sampled.
        ratio: share of the tree for the spine; 0 adapts it to p_s.
        bypass: when to verify the copied chain alone.
        bypass_length: least match (paper: chain) to verify the chain alone, in tokens.
        chain: name of the source that copies.
        min_chain: shorter copied chains count as no match, in tokens.
        spine: ablations: no spine, or a spine from the ranking source.
        spine_branches: ablation: off leaves the spine's nodes without branches.
        branches: name of the source that ranks.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
        adjacency__width: successors stored per key (K).
        adjacency__min_score: least probability a successor needs to be offered.
        adjacency__bigram: look up the last two tokens first; off: the last token only.
        adjacency__shared: one table for all requests of a namespace, not emptied between them.
        adjacency__max_rows: most keys stored; the oldest is dropped first.
        adjacency__harvest: learn from every node of a tree, or from the accepted ones only.
        adjacency__prompt: learn at all positions of the prompt, for which the output layer runs
            on them too.
        adjacency__table: prepared table, a file made by draftwood harvest.
    """

def iso3(
    *,
    context: str = 'context',
    adjacency: str = 'adjacency',
    verifier: str = 'walk',
    budget: int = 59,
    k: int = 3,
    chain: str = 'context',
    branches: str = 'adjacency',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
    adjacency__width: int = 10,
    adjacency__min_score: float = 0.01,
    adjacency__bigram: bool = True,
    adjacency__shared: bool = False,
    adjacency__max_rows: int = 65536,
    adjacency__harvest: Literal['all', 'accepted'] = 'all',
    adjacency__prompt: bool = True,
    adjacency__table: str | None = None,
) -> CustomGenerate:
    """A uniform 3-ary tree over GOOSE's two sources.

    Source: GOOSE's baseline Iso(3).

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        adjacency: which drafter answers the source adjacency: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        k: children of every node.
        chain: name of the source that copies.
        branches: name of the source that ranks.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
        adjacency__width: successors stored per key (K).
        adjacency__min_score: least probability a successor needs to be offered.
        adjacency__bigram: look up the last two tokens first; off: the last token only.
        adjacency__shared: one table for all requests of a namespace, not emptied between them.
        adjacency__max_rows: most keys stored; the oldest is dropped first.
        adjacency__harvest: learn from every node of a tree, or from the accepted ones only.
        adjacency__prompt: learn at all positions of the prompt, for which the output layer runs
            on them too.
        adjacency__table: prepared table, a file made by draftwood harvest.
    """

def iso5(
    *,
    context: str = 'context',
    adjacency: str = 'adjacency',
    verifier: str = 'walk',
    budget: int = 59,
    k: int = 5,
    chain: str = 'context',
    branches: str = 'adjacency',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
    adjacency__width: int = 10,
    adjacency__min_score: float = 0.01,
    adjacency__bigram: bool = True,
    adjacency__shared: bool = False,
    adjacency__max_rows: int = 65536,
    adjacency__harvest: Literal['all', 'accepted'] = 'all',
    adjacency__prompt: bool = True,
    adjacency__table: str | None = None,
) -> CustomGenerate:
    """A uniform 5-ary tree over GOOSE's two sources.

    Source: GOOSE's baseline Iso(5).

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        adjacency: which drafter answers the source adjacency: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        k: children of every node.
        chain: name of the source that copies.
        branches: name of the source that ranks.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
        adjacency__width: successors stored per key (K).
        adjacency__min_score: least probability a successor needs to be offered.
        adjacency__bigram: look up the last two tokens first; off: the last token only.
        adjacency__shared: one table for all requests of a namespace, not emptied between them.
        adjacency__max_rows: most keys stored; the oldest is dropped first.
        adjacency__harvest: learn from every node of a tree, or from the accepted ones only.
        adjacency__prompt: learn at all positions of the prompt, for which the output layer runs
            on them too.
        adjacency__table: prepared table, a file made by draftwood harvest.
    """

def lookahead(
    *,
    verifier: str = 'walk',
    budget: int = 120,
    columns: int = 15,
    ngram: int = 5,
    candidates: int = 15,
) -> CustomGenerate:
    """N-grams that the target makes beside its own tokens, and verifies later.

    Source: Lookahead Decoding (Fu et al. 2024).

    Args:
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        columns: columns of the window (W).
        ngram: tokens of an n-gram (N).
        candidates: most n-grams to verify in a step (G).
    """

def ngram_trie(
    *,
    trie: str = 'trie',
    verifier: str = 'walk',
    budget: int = 11,
    source: str = 'trie',
    trie__order: Literal['recency', 'frequency'] = 'recency',
    trie__depth: int = 18,
    trie__least_breadth: int = 1,
    trie__breadth: int = 10,
    trie__prompt: bool = False,
    trie__size: int = 100000,
) -> CustomGenerate:
    """A tree from a trie of what was generated, in this and in earlier requests.

    Source: NGRAM speculative decoding of SGLang (2025).

    Args:
        trie: which drafter answers the source trie: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        source: name of the source that copies a tree.
        trie__order: which successors come first: the latest (BFS), the most frequent (PROB).
        trie__depth: tokens of the longest n-gram.
        trie__least_breadth: fewest successors of a node, by recency.
        trie__breadth: most successors of a node.
        trie__prompt: draft from the whole prompt, too.
        trie__size: most tokens of finished requests that are kept, about 5 kB each.
    """

def pld(
    *,
    context: str = 'context',
    verifier: str = 'walk',
    budget: int = 20,
    chain: str = 'context',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A chain copied from the context.

    Source: Prompt Lookup Decoding, as GOOSE defines it.

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: longest chain to draft, in tokens.
        chain: name of the source that copies.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def rest(
    *,
    datastore: str = 'datastore',
    verifier: str = 'walk',
    budget: int = 64,
    delta: float = 0.0,
    max_depth: int = 10,
    source: str = 'datastore',
    datastore__text: tuple[str, ...] = (),
    datastore__size: int = 10000000,
    datastore__longest: int = 16,
    datastore__max_continuations: int = 4,
) -> CustomGenerate:
    """The most frequent continuations in given files.

    Source: REST (He et al. 2024).

    Args:
        datastore: which drafter answers the source datastore: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded (n).
        delta: expected tokens that a level must add for another to follow.
        max_depth: most draft forwards in a step.
        source: name of the drafter.
        datastore__text: files, and folders of files, to draft from.
        datastore__size: most tokens of these files.
        datastore__longest: longest suffix that is looked up, in tokens.
        datastore__max_continuations: most continuations, with distinct first tokens, to offer
            as chains.
    """

def sam(
    *,
    context: str = 'suffix',
    verifier: str = 'walk',
    budget: int = 20,
    chain: str = 'context',
    context__min_match: int = 1,
    context__max_tokens: int = 40,
    context__max_continuations: int = 4,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A chain copied by the longest suffix match.

    Source: SAM-Decoding (Hu et al. 2025), without its corpus.

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: longest chain to draft, in tokens.
        chain: name of the source that copies.
        context__min_match: shortest suffix that is continued, in tokens.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def throughput_chain(
    *,
    context: str = 'context',
    verifier: str = 'walk',
    budget: int = 16,
    floor: int = 2,
    cooldown: bool = False,
    chain: str = 'context',
    context__lengths: tuple[int, ...] = (3,),
    context__max_tokens: int = 16,
    context__max_continuations: int = 1,
    context__max_match: int = 64,
    context__wrap: bool = True,
) -> CustomGenerate:
    """A chain copied from the context, its length found by measured throughput.

    Source: n-gram decoding of onnxruntime-genai (2026).

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: longest chain to draft, in tokens.
        floor: shortest chain to draft, and the first (min_adaptive_k).
        cooldown: decode one step plainly after three of the shortest chains without an accepted
            one.
        chain: name of the source that copies.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def tr(
    *,
    adjacency: str = 'adjacency',
    verifier: str = 'walk',
    budget: int = 80,
    branches: str = 'adjacency',
    adjacency__width: int = 8,
    adjacency__min_score: float = 0.0,
    adjacency__bigram: bool = False,
    adjacency__shared: bool = False,
    adjacency__max_rows: int = 65536,
    adjacency__harvest: Literal['all', 'accepted'] = 'all',
    adjacency__prompt: bool = True,
    adjacency__table: str | None = None,
) -> CustomGenerate:
    """A static tree filled from the adjacency table.

    Source: Token Recycling.

    Args:
        adjacency: which drafter answers the source adjacency: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded (80 at most).
        branches: name of the source that ranks.
        adjacency__width: successors stored per key (K).
        adjacency__min_score: least probability a successor needs to be offered.
        adjacency__bigram: look up the last two tokens first; off: the last token only.
        adjacency__shared: one table for all requests of a namespace, not emptied between them.
        adjacency__max_rows: most keys stored; the oldest is dropped first.
        adjacency__harvest: learn from every node of a tree, or from the accepted ones only.
        adjacency__prompt: learn at all positions of the prompt, for which the output layer runs
            on them too.
        adjacency__table: prepared table, a file made by draftwood harvest.
    """

def adaptive_chain(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 7,
    warmup: int = 3,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A draft model's chain, cut by calibrated survival and by the cost of a step.

    Source: vLLM's adaptive verification (2026).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: tokens to draft, of which a part is verified.
        warmup: fits of the acceptance, 100 steps each, before chains are cut.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def block(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'block',
    budget: int = 62,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    shape: str = '1x1x1x1x1',
    last: Literal['none', 'top', 'context', 'greedy'] = 'none',
    deepest: Literal['first', 'last'] = 'first',
    chain: str = 'context',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A chain sampled from a draft model, verified as a whole.

    Source: Block Verification (Sun et al. 2024).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded; cuts the shape.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        shape: children per level ("1x1x1" is a chain), "sparse", or a JSON file.
        last: a node's last child: sampled too, the likeliest, or the copied one; greedy: all
            children but one are the likeliest.
        deepest: which child has the deepest subtree of its siblings.
        chain: name of the source that copies, for last=context.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def dflash(
    *,
    drafter: str = 'dflash',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = '',
    verifier: str = 'walk',
    budget: int = 15,
    depth: int | None = None,
    breadth: int = 1,
    threshold: float = 0.0,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    draft__ahead: int = 0,
) -> CustomGenerate:
    """A chain of a block drafter's likeliest tokens.

    Source: DFlash (z-lab, 2026).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: DFlash, DFlash2 or DSpark drafter made for this target: a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        depth: deepest node (D); none: as deep as the budget reaches.
        breadth: children of every node (B).
        threshold: least path probability of a node (tau).
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        draft__ahead: most tokens drafted in a block; 0: as many as it has.
    """

def dynatree(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 59,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    chain: str = '',
    copied: int = 10,
    children: Literal['top', 'drawn'] = 'top',
    last: Literal['none', 'top'] = 'none',
    breadth: Literal['adaptive', 'fixed'] = 'adaptive',
    depth: Literal['adaptive', 'fixed'] = 'adaptive',
    prune: bool = True,
    history: bool = True,
    b_min: int = 1,
    b_mid: int = 2,
    b_max: int = 3,
    tau_high: float = 0.9,
    tau_low: float = 0.4,
    base_depth: int = 6,
    max_depth: int = 9,
    rho_stop: float = 0.1,
    rho_deep: float = 0.5,
    tau: float = 0.05,
    window: int = 10,
    goal: float = 0.7,
    depth_step: float = 1.0,
    tau_step: float = 0.05,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A draft model's tree, its breadth by confidence, its depth by path probability.

    Source: DynaTree (adaptive draft-model trees).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        chain: name of a source that copies, as an extra path; empty: none.
        copied: longest copied path, in tokens (half the budget at most).
        children: a node's children: the likeliest, or as many samples of the draft model.
        last: a node's last child: sampled too, or the likeliest (children=drawn).
        breadth: ablation: fixed gives every node b_mid children.
        depth: ablation: fixed expands down to base_depth.
        prune: ablation: off keeps leaves under tau.
        history: ablation: off keeps base_depth and tau_high as they are.
        b_min: children of a node with c >= tau_high.
        b_mid: children of a node with tau_low <= c < tau_high.
        b_max: children of a node with c < tau_low.
        tau_high: confidence from which on a node gets b_min children.
        tau_low: confidence below which a node gets b_max children.
        base_depth: above it, only rho_stop ends a path (D_0, first value).
        max_depth: deepest node (D_max).
        rho_stop: least path probability to be expanded.
        rho_deep: path probability to exceed from base_depth on.
        tau: least path probability of a leaf.
        window: steps in the history (W).
        goal: acceptance to steer towards (a*).
        depth_step: step size of base_depth (eta_D).
        tau_step: step size of tau_high (eta_h).
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def eagle2(
    *,
    drafter: str = 'eagle3',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = 'embedded-eagle3',
    verifier: str = 'walk',
    budget: int = 59,
    top_k: int = 10,
    levels: int = 6,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """An EAGLE head's tree of fixed width and depth, cut to the likeliest nodes.

    Source: EAGLE-2 (Li et al. 2024).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        top_k: parents of a level, and children of each parent (K).
        levels: draft forwards, the root's included.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def eagle3(
    *,
    drafter: str = 'eagle3',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = 'embedded-eagle3',
    verifier: str = 'walk',
    budget: int = 59,
    top_k: int = 10,
    levels: int = 9,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """An EAGLE-3 head's tree of fixed width and depth, cut to the likeliest nodes.

    Source: EAGLE-3 (Li et al. 2025), with EAGLE-2's tree.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        top_k: parents of a level, and children of each parent (K).
        levels: draft forwards, the root's included.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def fixed_tree(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 59,
    depth: int | None = 9,
    breadth: int = 3,
    threshold: float = 0.1,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A draft model's tree of fixed breadth and depth.

    Source: DynaTree's fixed tree (D=8, B=3, tau=0.1).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        depth: deepest node (D); none: as deep as the budget reaches.
        breadth: children of every node (B).
        threshold: least path probability of a node (tau).
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def goose_eagle3(
    *,
    context: str = 'context',
    drafter: str = 'eagle3',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = 'embedded-eagle3',
    verifier: str = 'walk',
    budget: int = 59,
    max_depth: int = 6,
    rho: float = 0.5,
    top_k: int = 10,
    min_score: float = 0.01,
    ratio: float = 0.0,
    bypass: Literal['distinct', 'paper', 'off'] = 'distinct',
    bypass_length: int = 8,
    chain: str = 'context',
    min_chain: int = 1,
    spine: Literal['on', 'off', 'control'] = 'on',
    spine_branches: bool = True,
    branches: str = 'draft',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """GOOSE's spine, with branches from an EAGLE-3 head.

    Source: GOOSE, proposed there as future work.

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        max_depth: deepest branch, from its branching point (D).
        rho: share of the branches that goes to the spine's nodes.
        top_k: most children per node (K).
        min_score: least probability of a branch node that is not sampled.
        ratio: share of the tree for the spine; 0 adapts it to p_s.
        bypass: when to verify the copied chain alone.
        bypass_length: least match (paper: chain) to verify the chain alone, in tokens.
        chain: name of the source that copies.
        min_chain: shorter copied chains count as no match, in tokens.
        spine: ablations: no spine, or a spine from the ranking source.
        spine_branches: ablation: off leaves the spine's nodes without branches.
        branches: name of the source that ranks.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def goose_sampled(
    *,
    context: str = 'context',
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'traversal',
    budget: int = 59,
    max_depth: int = 6,
    rho: float = 0.5,
    top_k: int = 10,
    min_score: float = 0.01,
    ratio: float = 0.0,
    bypass: Literal['distinct', 'paper', 'off'] = 'distinct',
    bypass_length: int = 8,
    chain: str = 'context',
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """GOOSE's spine, with branches sampled from a draft model.

    Source: Traversal Verification, with GOOSE's spine.

    Args:
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        max_depth: deepest branch, from its branching point (D).
        rho: share of the branches that goes to the spine's nodes.
        top_k: most children per node (K).
        min_score: least probability of a branch node that is not sampled.
        ratio: share of the tree for the spine; 0 adapts it to p_s.
        bypass: when to verify the copied chain alone.
        bypass_length: least match (paper: chain) to verify the chain alone, in tokens.
        chain: name of the source that copies.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def greedy_order(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'rejection',
    budget: int = 62,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    shape: str = 'sparse',
    last: Literal['none', 'top', 'context', 'greedy'] = 'greedy',
    deepest: Literal['first', 'last'] = 'last',
    chain: str = 'context',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A sparse tree of the likeliest children and a sampled one, verified token by token.

    Source: Optimal Multi-Draft (Hu et al. 2025), its greedy draft sampling.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded; cuts the shape.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        shape: children per level ("1x1x1" is a chain), "sparse", or a JSON file.
        last: a node's last child: sampled too, the likeliest, or the copied one; greedy: all
            children but one are the likeliest.
        deepest: which child has the deepest subtree of its siblings.
        chain: name of the source that copies, for last=context.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def hydra(
    *,
    drafter: str = 'hydra',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = '',
    verifier: str = 'walk',
    budget: int = 59,
    tree: str = '',
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A static tree of Hydra's heads.

    Source: Hydra (Ankner et al. 2024).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: Hydra heads made for this target: a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        tree: JSON file of a searched tree; empty: one for the acceptance that the engine
            counts.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def medusa(
    *,
    drafter: str = 'medusa',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = '',
    verifier: str = 'walk',
    budget: int = 59,
    tree: str = '',
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A static tree of Medusa's heads.

    Source: Medusa (Cai et al. 2024).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: Medusa heads made for this target: a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        tree: JSON file of a searched tree; empty: one for the acceptance that the engine
            counts.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def mixed(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'traversal',
    budget: int = 62,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    shape: str = '2x2x2x2x2',
    last: Literal['none', 'top', 'context', 'greedy'] = 'top',
    deepest: Literal['first', 'last'] = 'first',
    chain: str = 'context',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A binary tree of a sampled and a likeliest child, its paths verified as wholes.

    Source: Traversal Verification; this layout is not in the paper.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded; cuts the shape.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        shape: children per level ("1x1x1" is a chain), "sparse", or a JSON file.
        last: a node's last child: sampled too, the likeliest, or the copied one; greedy: all
            children but one are the likeliest.
        deepest: which child has the deepest subtree of its siblings.
        chain: name of the source that copies, for last=context.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def mtp(
    *,
    drafter: str = 'mtp',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = 'target',
    verifier: str = 'walk',
    budget: int = 12,
    top_k: int = 4,
    levels: int = 3,
    source: str = 'draft',
) -> CustomGenerate:
    """A small tree of the target's own multi-token-prediction layers.

    Source: DeepSeek-V3 (DeepSeek-AI 2024), with EAGLE-2's tree.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: checkpoint of the target that has its MTP layers: a directory, a hub id, or
            'target', the one that the target was loaded from.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        top_k: parents of a level, and children of each parent (K).
        levels: draft forwards, the root's included.
        source: name of the drafter.
    """

def opt_tree(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 59,
    delta: float = 0.5,
    max_depth: int = 32,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A draft model's likeliest nodes, as deep as levels add expected tokens.

    Source: OPT-Tree (Wang et al. 2025).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded (n).
        delta: expected tokens that a level must add for another to follow.
        max_depth: most draft forwards in a step.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def pard(
    *,
    drafter: str = 'pard',
    draft: str | PreTrainedModel = '',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 8,
    depth: int | None = None,
    breadth: int = 1,
    threshold: float = 0.0,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    draft__ahead: int = 8,
) -> CustomGenerate:
    """A chain of a draft model's likeliest tokens, which it predicts in one forward.

    Source: PARD (An et al. 2025).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: PARD draft model, with a pard_token: a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        depth: deepest node (D); none: as deep as the budget reaches.
        breadth: children of every node (B).
        threshold: least path probability of a node (tau).
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        draft__ahead: most tokens drafted in a forward (K).
    """

def peagle(
    *,
    drafter: str = 'peagle',
    draft: str | PreTrainedModel | None = None,
    head: str | Any = '',
    verifier: str = 'walk',
    budget: int = 8,
    depth: int | None = None,
    breadth: int = 1,
    threshold: float = 0.0,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    draft__ahead: int = 8,
) -> CustomGenerate:
    """A chain of a P-EAGLE head's likeliest tokens, which it predicts in one forward.

    Source: P-EAGLE (AWS, 2026).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: P-EAGLE head made for this target: a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        depth: deepest node (D); none: as deep as the budget reaches.
        breadth: children of every node (B).
        threshold: least path probability of a node (tau).
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        draft__ahead: most tokens drafted in a forward (K).
    """

def rrsw(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'rejection',
    budget: int = 62,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    shape: str = 'sparse',
    last: Literal['none', 'top', 'context', 'greedy'] = 'none',
    deepest: Literal['first', 'last'] = 'first',
    chain: str = 'context',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A sparse tree sampled from a draft model, verified token by token.

    Source: RRSw (Jeon et al. 2024), baseline of Traversal Verification.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded; cuts the shape.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        shape: children per level ("1x1x1" is a chain), "sparse", or a JSON file.
        last: a node's last child: sampled too, the likeliest, or the copied one; greedy: all
            children but one are the likeliest.
        deepest: which child has the deepest subtree of its siblings.
        chain: name of the source that copies, for last=context.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def sd(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 5,
    depth: int | None = None,
    breadth: int = 1,
    threshold: float = 0.0,
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A chain of a draft model's likeliest tokens.

    Source: Speculative decoding (Leviathan et al. 2023).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        depth: deepest node (D); none: as deep as the budget reaches.
        breadth: children of every node (B).
        threshold: least path probability of a node (tau).
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def sequoia(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 59,
    tree: str = '',
    source: str = 'draft',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A static tree that is best for a draft model's acceptance by rank, counted or searched.

    Source: Sequoia (Chen et al. 2025).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        tree: JSON file of a searched tree; empty: one for the acceptance that the engine
            counts.
        source: name of the drafter.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def specinfer(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'rejection',
    budget: int = 62,
    source: str = 'draft',
    replacement: bool = True,
    draft_temperature: float = 0.0,
    shape: str = 'sparse',
    last: Literal['none', 'top', 'context', 'greedy'] = 'none',
    deepest: Literal['first', 'last'] = 'first',
    chain: str = 'context',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A sparse tree sampled with replacement, verified token by token.

    Source: SpecInfer (Miao et al. 2024).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded; cuts the shape.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        shape: children per level ("1x1x1" is a chain), "sparse", or a JSON file.
        last: a node's last child: sampled too, the likeliest, or the copied one; greedy: all
            children but one are the likeliest.
        deepest: which child has the deepest subtree of its siblings.
        chain: name of the source that copies, for last=context.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def talon(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'walk',
    budget: int = 59,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    chain: str = '',
    copied: int = 10,
    children: Literal['top', 'drawn'] = 'top',
    last: Literal['none', 'top'] = 'none',
    mu: float = 0.03,
    top_k: int = 10,
    robust: int = 1,
    max_depth: int = 32,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A draft model's tree that spends its budget where the model is confident.

    Source: TALON (confidence-gated trees under a budget).

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        chain: name of a source that copies, as an extra path; empty: none.
        copied: longest copied path, in tokens (half the budget at most).
        children: a node's children: the likeliest, or as many samples of the draft model.
        last: a node's last child: sampled too, or the likeliest (children=drawn).
        mu: least path probability, relative to the level's best.
        top_k: nodes of a level that is not gated (K).
        robust: levels from the root that are not gated.
        max_depth: most draft forwards in a step.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def traversal(
    *,
    drafter: str = 'model',
    context: str = 'context',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'traversal',
    budget: int = 62,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    shape: str = 'sparse',
    last: Literal['none', 'top', 'context', 'greedy'] = 'none',
    deepest: Literal['first', 'last'] = 'first',
    chain: str = 'context',
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
    context__lengths: tuple[int, ...] = (5, 4, 3),
    context__max_tokens: int = 20,
    context__max_continuations: int = 4,
    context__max_match: int = 64,
    context__wrap: bool = False,
) -> CustomGenerate:
    """A sparse tree sampled from a draft model, its paths verified as wholes.

    Source: Traversal Verification.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        context: which drafter answers the source context: adjacency, context, datastore,
            dflash, eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle,
            suffix, trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded; cuts the shape.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        shape: children per level ("1x1x1" is a chain), "sparse", or a JSON file.
        last: a node's last child: sampled too, the likeliest, or the copied one; greedy: all
            children but one are the likeliest.
        deepest: which child has the deepest subtree of its siblings.
        chain: name of the source that copies, for last=context.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
        context__lengths: suffix lengths, in tokens, that are looked up, longest first.
        context__max_tokens: longest continuation to copy, in tokens.
        context__max_continuations: most continuations, with distinct first tokens, to offer.
        context__max_match: longest match to measure, in tokens.
        context__wrap: continue past the end of the text with the tokens copied so far.
    """

def traversal_dynatree(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'traversal',
    budget: int = 59,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    chain: str = '',
    copied: int = 10,
    children: Literal['top', 'drawn'] = 'drawn',
    last: Literal['none', 'top'] = 'none',
    breadth: Literal['adaptive', 'fixed'] = 'adaptive',
    depth: Literal['adaptive', 'fixed'] = 'adaptive',
    prune: bool = True,
    history: bool = True,
    b_min: int = 1,
    b_mid: int = 2,
    b_max: int = 3,
    tau_high: float = 0.9,
    tau_low: float = 0.4,
    base_depth: int = 6,
    max_depth: int = 9,
    rho_stop: float = 0.1,
    rho_deep: float = 0.5,
    tau: float = 0.05,
    window: int = 10,
    goal: float = 0.7,
    depth_step: float = 1.0,
    tau_step: float = 0.05,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A sampled tree, its breadth by confidence, its depth by path probability.

    Source: Traversal Verification, with DynaTree's gates.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        chain: name of a source that copies, as an extra path; empty: none.
        copied: longest copied path, in tokens (half the budget at most).
        children: a node's children: the likeliest, or as many samples of the draft model.
        last: a node's last child: sampled too, or the likeliest (children=drawn).
        breadth: ablation: fixed gives every node b_mid children.
        depth: ablation: fixed expands down to base_depth.
        prune: ablation: off keeps leaves under tau.
        history: ablation: off keeps base_depth and tau_high as they are.
        b_min: children of a node with c >= tau_high.
        b_mid: children of a node with tau_low <= c < tau_high.
        b_max: children of a node with c < tau_low.
        tau_high: confidence from which on a node gets b_min children.
        tau_low: confidence below which a node gets b_max children.
        base_depth: above it, only rho_stop ends a path (D_0, first value).
        max_depth: deepest node (D_max).
        rho_stop: least path probability to be expanded.
        rho_deep: path probability to exceed from base_depth on.
        tau: least path probability of a leaf.
        window: steps in the history (W).
        goal: acceptance to steer towards (a*).
        depth_step: step size of base_depth (eta_D).
        tau_step: step size of tau_high (eta_h).
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """

def traversal_talon(
    *,
    drafter: str = 'model',
    draft: str | PreTrainedModel = 'embedded-draft',
    head: str | Any | None = None,
    verifier: str = 'traversal',
    budget: int = 59,
    source: str = 'draft',
    replacement: bool = False,
    draft_temperature: float = 0.0,
    chain: str = '',
    copied: int = 10,
    children: Literal['top', 'drawn'] = 'drawn',
    last: Literal['none', 'top'] = 'none',
    mu: float = 0.03,
    top_k: int = 10,
    robust: int = 1,
    max_depth: int = 32,
    draft__dtype: Literal['auto', 'target', 'float32', 'bfloat16', 'float16'] = 'auto',
) -> CustomGenerate:
    """A sampled tree that spends its budget where the model is confident.

    Source: Traversal Verification, with TALON's gate.

    Args:
        drafter: which drafter answers the source draft: adjacency, context, datastore, dflash,
            eagle3, forced, gemma4, hydra, medusa, memory, model, mtp, pard, peagle, suffix,
            trie.
        draft: draft model: 'embedded-draft', a directory or a hub id.
        head: EAGLE-3 head made for this target: 'embedded-eagle3', a directory or a hub id.
        verifier: accept rule: block, rejection, traversal, walk.
        budget: most nodes to draft, root excluded.
        source: name of the drafter.
        replacement: sample siblings independently, so that they may repeat (if any are
            sampled).
        draft_temperature: temperature of sampled drafts; 0 is the request's own.
        chain: name of a source that copies, as an extra path; empty: none.
        copied: longest copied path, in tokens (half the budget at most).
        children: a node's children: the likeliest, or as many samples of the draft model.
        last: a node's last child: sampled too, or the likeliest (children=drawn).
        mu: least path probability, relative to the level's best.
        top_k: nodes of a level that is not gated (K).
        robust: levels from the root that are not gated.
        max_depth: most draft forwards in a step.
        draft__dtype: number format of the weights; auto: the target's, but bfloat16 for more
            than 8 MB beside a float32 target on a CPU that multiplies bfloat16, and for EAGLE
            heads where kernels run.
    """
