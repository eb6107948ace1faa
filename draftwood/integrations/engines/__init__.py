"""Drafting for inference engines that verify and sample themselves, such as SGLang and vLLM.

The sources, the calibration and the policies are the library's own. Nothing here needs torch or
transformers, so an engine's pins of them do not matter.
"""

from draftwood.integrations.engines.drafts import EngineDrafts
from draftwood.integrations.engines.packed import PackedTree, packed
from draftwood.integrations.engines.rows import TopRows

__all__ = ["EngineDrafts", "PackedTree", "TopRows", "packed"]
