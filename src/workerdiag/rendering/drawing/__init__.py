"""Drawings of a diagnosis as inline SVG: values in, markup out, no script and nothing that is loaded.

Positions along the width are percentages and heights are pixels, so that text keeps its size on any screen.
Colours are classes of the style sheet (`templates/report.css`).
"""
