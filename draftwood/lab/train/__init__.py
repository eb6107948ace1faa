"""Training of EAGLE-3 heads for any target, and of the small models in the package.

Results are directories in Hugging Face and EAGLE form.
"""
