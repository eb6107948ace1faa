"""What ``draftwood doctor`` finds: about the machine, a model on it, and the speed of both."""
