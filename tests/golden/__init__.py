"""Worked cases in JSON files, recomputed with the package: spine trees and verifications.

``python -m tests.golden FILE...`` checks files. Each module describes the keys that it reads.
"""
