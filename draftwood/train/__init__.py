"""Training of the two small models that ship inside the package.

Everything here ends in ordinary Hugging Face directories; nothing outside this
package imports it, and it knows nothing about trees, policies or the engine.
"""
