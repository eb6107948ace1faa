"""Training of the small models that ship inside the package, and of EAGLE-3 heads for any target.

Everything here ends in directories as others publish them; nothing outside this
package imports it, and it knows nothing about trees, policies or the engine.
"""
