"""The fields of one fixed-readout network and how training moves them (Nordio)."""
