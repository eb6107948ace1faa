"""Layouts of the kernels for all numbers of rows."""

from draftwood.runner.cpu.layouts import PANELS, ROWS, LayoutChoice

IN_ROWS = LayoutChoice(ROWS, 1)
IN_PANELS = LayoutChoice(PANELS, 1)
