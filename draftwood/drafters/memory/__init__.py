"""The memory: copies what followed the end of the text in other requests and in given files.

Continuations of several occurrences are counted. So a text that was generated before is drafted
from, whichever request it was in: agents that read the same files again and again, a second answer
to a prompt, code beside code of its repository.
"""

from draftwood.drafters.memory.drafter import PART

__all__ = ["PART"]
