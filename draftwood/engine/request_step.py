"""A step of one request, and its events.

Events take a tokenizer's time, and the next step does not need them. So on another device than the
CPU they are made while that runs the next forward.
"""

from dataclasses import dataclass

from draftwood.engine.request import Delta, Stepped
from draftwood.engine.sequence import RunningRequest, Taken
from draftwood.engine.stats import StepStats
from draftwood.protocols import Outcome, Prediction, StepTimes


@dataclass(frozen=True, eq=False)
class RequestStep:
    """A step of a request whose events are not made yet.

    Attributes:
        sequence: the request.
        taken: its new tokens.
        outcome: of the step.
        prediction: the tuner's.
        times: of the batch's step.
        batch: requests that shared the step.
        draft_calls: forwards of draft models in the step.
    """

    sequence: RunningRequest
    taken: Taken
    outcome: Outcome
    prediction: Prediction | None
    times: StepTimes
    batch: int
    draft_calls: int

    def events(self) -> tuple[Delta, Stepped]:
        """Make the text and the statistics.

        Raises:
            Exception: the tokenizer's. The tokens do not count then.
        """
        tree, path = self.outcome.tree, self.outcome.path
        delta = self.sequence.told(self.taken, [tree.sources[node] for node in path])
        stats = StepStats(
            tree=tree,
            path=path,
            committed=len(delta.tokens),
            times=self.times,
            batch=self.batch,
            draft_calls=self.draft_calls,
            prediction=self.prediction,
        )
        self.sequence.tally.add(stats)
        return delta, Stepped(self.sequence.number, stats)
