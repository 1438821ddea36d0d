"""Figures and the HTML report. Needs the extra `report`; nothing else in dynagram imports it."""
